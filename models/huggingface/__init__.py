"""Models of Hugging Face's folders: a file for each family."""
