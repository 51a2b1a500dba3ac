hashtextextended('tenure.' || q.name, 0)
