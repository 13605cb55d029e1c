"""Problems: a loss over samples, a penalty, and the proof of how good an answer is."""
