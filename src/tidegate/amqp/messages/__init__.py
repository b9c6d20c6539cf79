"""Messages as bytes (part 3): their sections, batches, and annotations added without decoding the rest."""
