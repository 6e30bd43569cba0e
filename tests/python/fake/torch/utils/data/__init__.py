info = None


def get_worker_info():
    return info
