"""The code of Lambda functions, each a file that imports only what Lambda's runtime has."""
