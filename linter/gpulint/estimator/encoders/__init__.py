"""What turns images and sound into rows of a text decoder's input."""
