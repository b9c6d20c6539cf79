"""What a job connects to: inputs, outputs, and the vocabulary that both share with the rest of a job."""
