"""What developers and CI run; nothing in src knows it."""
