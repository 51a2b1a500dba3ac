"""What two and three sessions do at once, in every order of their steps, held against what they would do one by one."""
