case when octet_length(i.payload_text::jsonb::text) > %(max_bytes)s then 'too_large'
     when i.wants_result and i.key is null and not ({keeps}) then 'no_result'
end
