"""scikit-learn's example of learning from batches with partial_fit (out-of-core classification).

Source: https://scikit-learn.org/stable/auto_examples/applications/plot_out_of_core_classification.html, The
scikit-learn developers, BSD 3-Clause License. Much shortened. Unlike the original, it uses scikit-learn's digits
instead of news from Reuters, goes over them several times, and has one classifier and no pictures.
"""

import numpy as np
from gaudi_tune import Experiment, main as tune_main, report, tune
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier

all_classes = np.arange(10)


def iter_minibatches(X, y, minibatch_size):
    """Generator of minibatches."""
    for start in range(0, len(X), minibatch_size):
        yield X[start : start + minibatch_size], y[start : start + minibatch_size]


def main(alpha=0.0001, eta0=0.01, passes=10):
    X, y = load_digits(return_X_y=True)
    X_test, y_test, X_train, y_train = X[:400] / 16, y[:400], X[400:] / 16, y[400:]
    cls = SGDClassifier(alpha=alpha, eta0=eta0, learning_rate="constant")

    for i in range(passes):
        # Main loop : iterate on mini-batches of examples
        for X_batch, y_batch in iter_minibatches(X_train, y_train, minibatch_size=100):
            # update estimator with examples in the current mini-batch
            cls.partial_fit(X_batch, y_batch, classes=all_classes)

        # accumulate test accuracy stats
        accuracy = cls.score(X_test, y_test)
        print(f"pass {i}: accuracy {accuracy:.3f}")
        report({"accuracy": accuracy})


if __name__ == "__main__":
    space = {"alpha": tune.loguniform(1e-7, 1e-1), "eta0": tune.loguniform(1e-4, 1.0)}
    loop = lambda config: main(config["alpha"], config["eta0"], config["epochs"])
    tune_main(Experiment(train_loop=loop, space=space, metric="accuracy"))
