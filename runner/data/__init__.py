"""The data room: from files and hub names to tokenised rows, every loss of a row counted on the way."""
