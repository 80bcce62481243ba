"""What packages do in which of their releases, a module a package, and which of them take part in a job."""
