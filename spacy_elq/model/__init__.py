"""The thinc models and the encoders behind them."""
