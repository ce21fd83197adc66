import argparse
import os

import xgboost as xgb
from sklearn.datasets import load_iris
from sklearn.model_selection import train_test_split

parser = argparse.ArgumentParser()
parser.add_argument("--n-estimators", type=int, default=2)
parser.add_argument("--max-depth", type=int, default=2)
parser.add_argument("--model-dir", default=os.environ.get("SM_MODEL_DIR", "."))
args = parser.parse_args()
data = load_iris()
X_train, X_test, y_train, y_test = train_test_split(data["data"], data["target"], test_size=0.2)
bst = xgb.XGBClassifier(n_estimators=args.n_estimators, max_depth=args.max_depth, objective="multi:softprob")
bst.fit(X_train, y_train)
print(f"accuracy {bst.score(X_test, y_test):.3f}", flush=True)
bst.save_model(os.path.join(args.model_dir, "model.json"))
