{ended_columns}, j.blocks
