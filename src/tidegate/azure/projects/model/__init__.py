"""What the files of a Stream Analytics project hold, whichever tool wrote them."""
