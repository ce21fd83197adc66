FROM public.ecr.aws/deep-learning-containers/pytorch:2.13-cpu-amzn2023-sagemaker
RUN pip install --no-cache-dir accelerate
