"""Linear layers and what PEFT puts in and around them."""
