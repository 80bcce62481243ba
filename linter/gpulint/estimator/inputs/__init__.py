"""What a micro batch holds: sequences, images and sound, and which of its tokens are scored."""
