"""Plans and what they are made of, as plain data: the only part that the compiler imports."""
