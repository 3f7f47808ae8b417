-- A write that changes nothing. A server without memory refuses it, and the script with it; later
-- writes of a script are never refused.
redis.call('ZADD', KEYS[2], 'XX', 'GT', '-inf', '')

