FROM public.ecr.aws/deep-learning-containers/pytorch:2.13-cpu-amzn2023-sagemaker
COPY *.py /opt/ml/code/
ENV SAGEMAKER_PROGRAM=probe.py
ENV SAGEMAKER_SUBMIT_DIRECTORY=/opt/ml/code
COPY entrypoint.py /usr/local/bin/
ENTRYPOINT ["python", "/usr/local/bin/entrypoint.py", "bash", "-m", "start_with_right_hostname.sh"]
