"""How props are checked: their types, and which of them an execution's input may decide."""
