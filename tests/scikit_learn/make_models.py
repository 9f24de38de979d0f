"""Train small models of scikit-learn and LightGBM, and write them as ONNX with features to run them on.

``python make_models.py FOLDER`` runs in an environment of its own (``requirements.txt``).
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROWS = 65


def _models() -> Iterator[tuple[str, Any, np.ndarray, np.ndarray, dict[str, Any]]]:
    """Give the name, the model, features, targets and options of the converter of each model."""
    from sklearn import (
        cluster,
        datasets,
        decomposition,
        ensemble,
        feature_selection,
        impute,
        linear_model,
        naive_bayes,
        neighbors,
        neural_network,
        preprocessing,
        svm,
        tree,
    )
    from sklearn.pipeline import make_pipeline

    def classes(count: int) -> tuple[np.ndarray, np.ndarray]:
        x, y = datasets.make_classification(300, 8, n_informative=6, n_classes=count, random_state=count)
        return x.astype(np.float32), y

    (x2, y2), (x3, y3) = classes(2), classes(3)
    x, y = datasets.make_regression(300, 8, random_state=0)
    x, y = x.astype(np.float32), y / 100
    gaps = np.where(np.random.default_rng(0).random(x3.shape) < 0.1, np.float32(np.nan), x3)
    categories = np.random.default_rng(0).integers(0, 4, (200, 3))
    plain = {"zipmap": False}
    logistic = linear_model.LogisticRegression()
    for name, model, features, targets in (
        ("scaled_logistic_2", make_pipeline(preprocessing.StandardScaler(), logistic), x2, y2),
        ("scaled_logistic_3", make_pipeline(preprocessing.MinMaxScaler(), logistic), x3, y3),
        ("logistic_labels", linear_model.LogisticRegression(), x2, np.where(y2, 7, 3)),
        ("imputed", make_pipeline(impute.SimpleImputer(), preprocessing.Normalizer(), logistic), gaps, y3),
        (
            "selected",
            make_pipeline(feature_selection.SelectKBest(k=4), preprocessing.Binarizer(threshold=0.1), logistic),
            x3,
            y3,
        ),
        ("forest_2", ensemble.RandomForestClassifier(30, max_depth=8, random_state=0), x2, np.where(y2, 7, 3)),
        ("forest_3", ensemble.RandomForestClassifier(100, random_state=0), x3, y3),
        ("extra_trees_3", ensemble.ExtraTreesClassifier(20, random_state=0), x3, y3),
        ("tree_3", tree.DecisionTreeClassifier(random_state=0), x3, y3),
        ("boosting_2", ensemble.GradientBoostingClassifier(n_estimators=20, random_state=0), x2, y2),
        ("boosting_3", ensemble.GradientBoostingClassifier(n_estimators=20, random_state=0), x3, y3),
        ("svc_2", svm.SVC(), x2, y2),
        ("svc_polynomial", svm.SVC(kernel="poly"), x3, y3),
        ("svc_sigmoid", svm.NuSVC(kernel="sigmoid", nu=0.3), x3, y3),
        ("svc_likely_2", svm.SVC(probability=True, random_state=0), x2, y2),
        ("svc_likely_3", svm.SVC(probability=True, random_state=0), x3, y3),
        ("naive_bayes", naive_bayes.GaussianNB(), x3, y3),
        ("perceptron", neural_network.MLPClassifier((16,), max_iter=50, random_state=0), x3, y3),
        ("neighbours", neighbors.KNeighborsClassifier(), x3, y3),
    ):
        yield name, model, features, targets, plain
    for name, model, targets in (
        ("linear", linear_model.LinearRegression(), y),
        ("linear_2", linear_model.LinearRegression(), np.stack([y, x[:, 0]], 1)),
        ("forest", ensemble.RandomForestRegressor(50, random_state=0), y),
        ("forest_of_2", ensemble.RandomForestRegressor(20, random_state=0), np.stack([y, x[:, 0]], 1)),
        ("boosting", ensemble.GradientBoostingRegressor(n_estimators=30, random_state=0), y),
        ("svr", svm.SVR(), y),
        ("svr_polynomial", svm.NuSVR(kernel="poly"), y),
        ("one_class", svm.OneClassSVM(), y),
        ("clusters", cluster.KMeans(4, random_state=0, n_init=2), y),
        ("components", decomposition.PCA(3), y),
        ("robust", preprocessing.RobustScaler(), y),
        ("bins", preprocessing.KBinsDiscretizer(4, encode="onehot-dense"), y),
    ):
        yield name, model, x, targets, {}
    encoder = preprocessing.OneHotEncoder(sparse_output=False, handle_unknown="ignore")
    yield "one_hot", encoder, categories, y[:200], {}
    yield "ordinal", preprocessing.OrdinalEncoder(), categories, y[:200], {}
    yield "maps", linear_model.LogisticRegression(), x3, y3, {"zipmap": True}
    yield "float64", linear_model.LogisticRegression(), x3.astype(np.float64), y3, plain
    yield "text", linear_model.LogisticRegression(), x3, np.asarray(["a", "b", "c"])[y3], plain
    import lightgbm

    common = {"verbose": -1, "n_estimators": 30}
    bagged = {"boosting_type": "rf", "subsample": 0.6, "subsample_freq": 1}
    yield "lightgbm_2", lightgbm.LGBMClassifier(**common), x2, y2, plain
    yield "lightgbm_3", lightgbm.LGBMClassifier(**common), gaps, y3, plain
    yield "lightgbm", lightgbm.LGBMRegressor(**common), x, y, {}
    yield "lightgbm_forest", lightgbm.LGBMRegressor(**common, **bagged), x, y, {}


def main(folder: Path) -> None:
    from onnxmltools import convert_lightgbm
    from onnxmltools.convert.common.data_types import FloatTensorType
    from skl2onnx import to_onnx

    warnings.simplefilter("ignore")
    for name, model, features, targets, options in _models():
        model.fit(features, targets)
        if name.startswith("lightgbm"):
            types = [("x", FloatTensorType([None, features.shape[1]]))]
            converted = convert_lightgbm(model, initial_types=types, target_opset=15, **options)
        else:
            by_model = {id(model): options} if options else None
            converted = to_onnx(model, features[:1], options=by_model, target_opset={"": 18, "ai.onnx.ml": 3})
        (folder / f"{name}.onnx").write_bytes(converted.SerializeToString())
        np.save(folder / f"{name}.npy", features[:ROWS])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
