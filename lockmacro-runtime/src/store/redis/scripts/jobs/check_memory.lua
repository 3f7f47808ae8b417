-- A write that changes nothing, and that a server without memory refuses, and the script with it. Later
-- ones of a script are never refused.
redis.call('ZADD', KEYS[2], 'XX', 'GT', '-inf', '')

