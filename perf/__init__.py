"""How fast, side by side with the libraries a user would pick instead; see README.md."""
