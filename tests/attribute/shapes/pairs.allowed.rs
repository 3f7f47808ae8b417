// Written by the suite `expand`, with BLESS=1.

rows! { (id, note)
    rest { [holder_note = "<note>"] [manager = installed()]
        [manager = if id > 0 { installed() } else { other() }] [map_err = std::convert::identity]
        [name = "orders.audit"] [crate = ::lockmacro_runtime] }
    key { [key = "order:<id>"] [ttl = "30s"] [ttl = note.lease()] [max_hold = "60s"]
        [min_hold = "1ms"] [wait = "5s"] [wait = forever] [shared] [permits = 3]
        [permits = note.permits()] [on_busy = error] [on_busy = skip] [on_busy = fallback(later)]
        [on_busy = defer("30s")] [on_busy = reuse] [on_lost = error] [on_lost = finish]
        [on_lost = undone] [release = background] [guard = _guard] [fence = _fence]
        [message = "order <id> is audited"] [message = "<note.text()> is audited"] .. }
    key_of_a_call { [key = note.key(id)] [ttl = "30s"] [ttl = note.lease()] [max_hold = "60s"]
        [min_hold = "1ms"] [wait = "5s"] [wait = forever] [shared] [permits = 3]
        [permits = note.permits()] [on_busy = error] [on_busy = skip] [on_busy = fallback(later)]
        [on_busy = defer("30s")] [on_busy = reuse] [on_lost = error] [on_lost = finish]
        [on_lost = undone] [release = background] [guard = _guard] [fence = _fence]
        [message = "order <id> is audited"] [message = "<note.text()> is audited"] .. }
    key_of_branches { [key = if id > 0 { note.key(id) } else { note.key(0) }] [ttl = "30s"]
        [ttl = note.lease()] [max_hold = "60s"] [min_hold = "1ms"] [wait = "5s"] [wait = forever]
        [shared] [permits = 3] [permits = note.permits()] [on_busy = error] [on_busy = skip]
        [on_busy = fallback(later)] [on_busy = defer("30s")] [on_busy = reuse] [on_lost = error]
        [on_lost = finish] [on_lost = undone] [release = background] [guard = _guard]
        [fence = _fence] [message = "order <id> is audited"] [message = "<note.text()> is audited"]
        .. }
    keys { [key = ["order:<id>", shared("note:<id>:<note>")]] [ttl = "30s"] [ttl = note.lease()]
        [max_hold = "60s"] [min_hold = "1ms"] [wait = "5s"] [wait = forever] [on_busy = error]
        [on_busy = skip] [on_busy = fallback(later)] [on_busy = defer("30s")] [on_lost = error]
        [on_lost = finish] [on_lost = undone] [release = background] [guard = _guard]
        [fence = [_order, _note]] [message = "order <id> is audited"]
        [message = "<note.text()> is audited"] .. }
    keys_of_an_iterator { [key = keys([note.key(id)])] }
    ttl { [ttl = "30s"] [renew] [min_hold = "1ms"] [wait = "5s"] [wait = forever] [shared]
        [permits = 3] [permits = note.permits()] [on_busy = error] [on_busy = skip]
        [on_busy = fallback(later)] [on_busy = defer("30s")] [on_busy = reuse] [on_lost = error]
        [on_lost = finish] [on_lost = undone] [release = background] [guard = _guard]
        [fence = _fence] [message = "order <id> is audited"] [message = "<note.text()> is audited"]
        .. }
    ttl_of_a_call { [ttl = note.lease()] [renew] [min_hold = "1ms"] [wait = "5s"] [wait = forever]
        [shared] [permits = 3] [permits = note.permits()] [on_busy = error] [on_busy = skip]
        [on_busy = fallback(later)] [on_busy = defer("30s")] [on_busy = reuse] [on_lost = error]
        [on_lost = finish] [on_lost = undone] [release = background] [guard = _guard]
        [fence = _fence] [message = "order <id> is audited"] [message = "<note.text()> is audited"]
        .. }
    renew { [renew] }
    max_hold { [max_hold = "60s"] [min_hold = "1ms"] [wait = "5s"] [wait = forever] [shared]
        [permits = 3] [permits = note.permits()] [on_busy = error] [on_busy = skip]
        [on_busy = fallback(later)] [on_busy = defer("30s")] [on_busy = reuse] [on_lost = error]
        [on_lost = finish] [on_lost = undone] [release = background] [guard = _guard]
        [fence = _fence] [message = "order <id> is audited"] [message = "<note.text()> is audited"]
        .. }
    min_hold { [min_hold = "1ms"] [wait = "5s"] [wait = forever] [shared] [permits = 3]
        [permits = note.permits()] [on_busy = error] [on_busy = skip] [on_busy = fallback(later)]
        [on_busy = defer("30s")] [on_busy = reuse] [on_lost = error] [on_lost = finish]
        [on_lost = undone] [release = background] [guard = _guard] [fence = _fence]
        [message = "order <id> is audited"] [message = "<note.text()> is audited"] .. }
    wait { [wait = "5s"] [shared] [permits = 3] [permits = note.permits()] [on_busy = error]
        [on_busy = skip] [on_busy = fallback(later)] [on_busy = defer("30s")] [on_busy = reuse]
        [on_lost = error] [on_lost = finish] [on_lost = undone] [release = background]
        [guard = _guard] [fence = _fence] [message = "order <id> is audited"]
        [message = "<note.text()> is audited"] .. }
    wait_forever { [wait = forever] [shared] [permits = 3] [permits = note.permits()]
        [on_busy = error] [on_busy = reuse] [on_lost = error] [on_lost = finish] [on_lost = undone]
        [release = background] [guard = _guard] [fence = _fence] [message = "order <id> is audited"]
        [message = "<note.text()> is audited"] .. }
    shared { [shared] [on_busy = error] [on_busy = skip] [on_busy = fallback(later)]
        [on_busy = defer("30s")] [on_lost = error] [on_lost = finish] [on_lost = undone]
        [release = background] [guard = _guard] [fence = _fence] [message = "order <id> is audited"]
        [message = "<note.text()> is audited"] .. }
    permits { [permits = 3] [on_busy = error] [on_busy = skip] [on_busy = fallback(later)]
        [on_busy = defer("30s")] [on_lost = error] [on_lost = finish] [on_lost = undone]
        [release = background] [guard = _guard] [fence = _fence] [message = "order <id> is audited"]
        [message = "<note.text()> is audited"] .. }
    permits_of_a_call { [permits = note.permits()] [on_busy = error] [on_busy = skip]
        [on_busy = fallback(later)] [on_busy = defer("30s")] [on_lost = error] [on_lost = finish]
        [on_lost = undone] [release = background] [guard = _guard] [fence = _fence]
        [message = "order <id> is audited"] [message = "<note.text()> is audited"] .. }
    on_busy { [on_busy = error] [on_lost = error] [on_lost = finish] [on_lost = undone]
        [release = background] [guard = _guard] [fence = _fence] [message = "order <id> is audited"]
        [message = "<note.text()> is audited"] .. }
    skip { [on_busy = skip] [on_lost = error] [on_lost = finish] [on_lost = undone]
        [release = background] [guard = _guard] [fence = _fence] .. }
    fallback { [on_busy = fallback(later)] [on_lost = error] [on_lost = finish] [on_lost = undone]
        [release = background] [guard = _guard] [fence = _fence] .. }
    defer { [on_busy = defer("30s")] [on_lost = error] [on_lost = finish] [on_lost = undone]
        [release = background] [guard = _guard] [fence = _fence] .. }
    reuse { [on_busy = reuse] [on_lost = error] [on_lost = finish] [on_lost = undone]
        [release = background] .. }
    on_lost { [on_lost = error] [release = background] [guard = _guard] [fence = _fence]
        [message = "order <id> is audited"] [message = "<note.text()> is audited"] .. }
    finish { [on_lost = finish] [release = background] [guard = _guard] [fence = _fence]
        [message = "order <id> is audited"] [message = "<note.text()> is audited"] .. }
    recovering { [on_lost = undone] [release = background] [guard = _guard] [fence = _fence]
        [message = "order <id> is audited"] [message = "<note.text()> is audited"] .. }
    release { [release = background] [guard = _guard] [fence = _fence]
        [message = "order <id> is audited"] [message = "<note.text()> is audited"] .. }
    guard { [guard = _guard] [fence = _fence] [message = "order <id> is audited"]
        [message = "<note.text()> is audited"] .. }
    fence { [fence = _fence] [message = "order <id> is audited"]
        [message = "<note.text()> is audited"] .. }
    fences { [fence = [_order, _note]] }
    message { [message = "order <id> is audited"] .. }
    message_of_a_call { [message = "<note.text()> is audited"] .. }
    holder_note { [holder_note = "<note>"] [manager = installed()]
        [manager = if id > 0 { installed() } else { other() }] [map_err = std::convert::identity]
        [name = "orders.audit"] [crate = ::lockmacro_runtime] }
    manager { [manager = installed()] [map_err = std::convert::identity] [name = "orders.audit"]
        [crate = ::lockmacro_runtime] }
    manager_of_branches { [manager = if id > 0 { installed() } else { other() }]
        [map_err = std::convert::identity] [name = "orders.audit"] [crate = ::lockmacro_runtime] }
    map_err { [map_err = std::convert::identity] [name = "orders.audit"]
        [crate = ::lockmacro_runtime] }
    name { [name = "orders.audit"] [crate = ::lockmacro_runtime] }
    runtime { [crate = ::lockmacro_runtime] }
}
