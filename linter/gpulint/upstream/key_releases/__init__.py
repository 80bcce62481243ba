"""Which releases of a package take which key; `scripts/release_keys.py` writes the tables from all of them."""
