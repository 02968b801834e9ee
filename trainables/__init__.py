"""What a trial does: objectives, models, corpora, training and evaluation, and the trainable over all of them."""
