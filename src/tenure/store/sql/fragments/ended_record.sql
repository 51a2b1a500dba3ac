{ended_columns}, false as blocks
