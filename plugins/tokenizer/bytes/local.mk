# SentencePiece plugin: see HAVE_SENTENCEPIECE in configure.ac.
