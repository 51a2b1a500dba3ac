(select count(*) from handed) is not null
