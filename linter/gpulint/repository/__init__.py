"""What the files of a repository say beside the configs: which releases it pins, and which file names which."""
