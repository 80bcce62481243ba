"""The commands, a module each: `command` is what `gpulint <module>` runs."""
