state = 'pending', token = null, lease_until = null
