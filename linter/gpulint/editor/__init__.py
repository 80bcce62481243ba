"""What an editor asks for: findings, fixes, help on keys, completion and the estimate, over texts that are not saved.

Only `server` and `protocol` speak the Language Server Protocol; everything else counts in characters of a text.
"""
