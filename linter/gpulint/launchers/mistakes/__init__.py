"""What makes a launch fail or wait for ever, whatever it starts: each module yields `Problem`s of one kind of cause."""
