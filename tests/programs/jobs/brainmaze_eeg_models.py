"""brainmaze-eeg-models: the probability of a seizure over a minute of a drawn EEG, rhythmic in its middle."""

import numpy as np
from brainmaze_eeg_models.seizure import infer_seizure_probability, preprocess_input


def run():
    rate = 200
    time = np.arange(60 * rate) / rate
    noise = np.random.default_rng(0).standard_normal(len(time)).cumsum()
    rhythm = np.sin(2 * np.pi * 5 * time) * 40 * ((time > 20) & (time < 40))
    signal = noise - noise.mean() + rhythm
    return infer_seizure_probability(preprocess_input(signal[None], rate)).ravel().tolist()
