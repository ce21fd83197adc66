"""STS: sessions of roles, with which the account's services act."""
