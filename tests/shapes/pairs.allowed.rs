// Written by the suite `expand`, with BLESS=1.

rows! { (id, note)
    key { [key = "order:<id>"] [ttl = "30s"] [ttl = note.lease()] [max_hold = "60s"]
        [min_hold = "1ms"] [wait = "5s"] [wait = forever] [shared] [permits = 3]
        [permits = note.permits()] [on_busy = error] [on_busy = skip] [on_busy = fallback(later)]
        [on_busy = defer("30s")] [on_lost = error] [on_lost = finish] [on_lost = undone]
        [release = background] [guard = _guard] [fence = _fence] [message = "order <id> is audited"]
        [message = "<note.text()> is audited"] [holder_note = "<note>"] [manager = installed()]
        [manager = if id > 0 { installed() } else { other() }] [map_err = std::convert::identity]
        [name = "orders.audit"] [crate = ::lockmacro_runtime] [policy = POLICY]
        // Refused: renew fences
    }
    key_of_a_call { [key = note.key(id)] [ttl = "30s"] [ttl = note.lease()] [max_hold = "60s"]
        [min_hold = "1ms"] [wait = "5s"] [wait = forever] [shared] [permits = 3]
        [permits = note.permits()] [on_busy = error] [on_busy = skip] [on_busy = fallback(later)]
        [on_busy = defer("30s")] [on_lost = error] [on_lost = finish] [on_lost = undone]
        [release = background] [guard = _guard] [fence = _fence] [message = "order <id> is audited"]
        [message = "<note.text()> is audited"] [holder_note = "<note>"] [manager = installed()]
        [manager = if id > 0 { installed() } else { other() }] [map_err = std::convert::identity]
        [name = "orders.audit"] [crate = ::lockmacro_runtime] [policy = POLICY]
        // Refused: renew fences
    }
    key_of_branches { [key = if id > 0 { note.key(id) } else { note.key(0) }] [ttl = "30s"]
        [ttl = note.lease()] [max_hold = "60s"] [min_hold = "1ms"] [wait = "5s"] [wait = forever]
        [shared] [permits = 3] [permits = note.permits()] [on_busy = error] [on_busy = skip]
        [on_busy = fallback(later)] [on_busy = defer("30s")] [on_lost = error] [on_lost = finish]
        [on_lost = undone] [release = background] [guard = _guard] [fence = _fence]
        [message = "order <id> is audited"] [message = "<note.text()> is audited"]
        [holder_note = "<note>"] [manager = installed()]
        [manager = if id > 0 { installed() } else { other() }] [map_err = std::convert::identity]
        [name = "orders.audit"] [crate = ::lockmacro_runtime] [policy = POLICY]
        // Refused: renew fences
    }
    keys { [key = ["order:<id>", shared("note:<id>:<note>")]] [ttl = "30s"] [ttl = note.lease()]
        [max_hold = "60s"] [min_hold = "1ms"] [wait = "5s"] [wait = forever] [on_busy = error]
        [on_busy = skip] [on_busy = fallback(later)] [on_busy = defer("30s")] [on_lost = error]
        [on_lost = finish] [on_lost = undone] [release = background] [guard = _guard]
        [fence = [_order, _note]] [message = "order <id> is audited"]
        [message = "<note.text()> is audited"] [holder_note = "<note>"] [manager = installed()]
        [manager = if id > 0 { installed() } else { other() }] [map_err = std::convert::identity]
        [name = "orders.audit"] [crate = ::lockmacro_runtime] [policy = POLICY]
        // Refused: renew shared permits permits_of_a_call fence
    }
    keys_of_an_iterator { [key = keys([note.key(id)])]
        // Refused: ttl ttl_of_a_call renew max_hold min_hold wait wait_forever shared permits
        // permits_of_a_call on_busy skip fallback defer on_lost finish recovering release guard
        // fence fences message message_of_a_call holder_note manager manager_of_branches map_err
        // name runtime policy
    }
    ttl { [ttl = "30s"] [renew] [min_hold = "1ms"] [wait = "5s"] [wait = forever] [shared]
        [permits = 3] [permits = note.permits()] [on_busy = error] [on_busy = skip]
        [on_busy = fallback(later)] [on_busy = defer("30s")] [on_lost = error] [on_lost = finish]
        [on_lost = undone] [release = background] [guard = _guard] [fence = _fence]
        [message = "order <id> is audited"] [message = "<note.text()> is audited"]
        [holder_note = "<note>"] [manager = installed()]
        [manager = if id > 0 { installed() } else { other() }] [map_err = std::convert::identity]
        [name = "orders.audit"] [crate = ::lockmacro_runtime] [policy = POLICY]
        // Refused: max_hold fences
    }
    ttl_of_a_call { [ttl = note.lease()] [renew] [min_hold = "1ms"] [wait = "5s"] [wait = forever]
        [shared] [permits = 3] [permits = note.permits()] [on_busy = error] [on_busy = skip]
        [on_busy = fallback(later)] [on_busy = defer("30s")] [on_lost = error] [on_lost = finish]
        [on_lost = undone] [release = background] [guard = _guard] [fence = _fence]
        [message = "order <id> is audited"] [message = "<note.text()> is audited"]
        [holder_note = "<note>"] [manager = installed()]
        [manager = if id > 0 { installed() } else { other() }] [map_err = std::convert::identity]
        [name = "orders.audit"] [crate = ::lockmacro_runtime] [policy = POLICY]
        // Refused: max_hold fences
    }
    renew { [renew] [policy = POLICY]
        // Refused: max_hold min_hold wait wait_forever shared permits permits_of_a_call on_busy
        // skip fallback defer on_lost finish recovering release guard fence fences message
        // message_of_a_call holder_note manager manager_of_branches map_err name runtime
    }
    max_hold { [max_hold = "60s"] [min_hold = "1ms"] [wait = "5s"] [wait = forever] [shared]
        [permits = 3] [permits = note.permits()] [on_busy = error] [on_busy = skip]
        [on_busy = fallback(later)] [on_busy = defer("30s")] [on_lost = error] [on_lost = finish]
        [on_lost = undone] [release = background] [guard = _guard] [fence = _fence]
        [message = "order <id> is audited"] [message = "<note.text()> is audited"]
        [holder_note = "<note>"] [manager = installed()]
        [manager = if id > 0 { installed() } else { other() }] [map_err = std::convert::identity]
        [name = "orders.audit"] [crate = ::lockmacro_runtime] [policy = POLICY]
        // Refused: fences
    }
    min_hold { [min_hold = "1ms"] [wait = "5s"] [wait = forever] [shared] [permits = 3]
        [permits = note.permits()] [on_busy = error] [on_busy = skip] [on_busy = fallback(later)]
        [on_busy = defer("30s")] [on_lost = error] [on_lost = finish] [on_lost = undone]
        [release = background] [guard = _guard] [fence = _fence] [message = "order <id> is audited"]
        [message = "<note.text()> is audited"] [holder_note = "<note>"] [manager = installed()]
        [manager = if id > 0 { installed() } else { other() }] [map_err = std::convert::identity]
        [name = "orders.audit"] [crate = ::lockmacro_runtime] [policy = POLICY]
        // Refused: fences
    }
    wait { [wait = "5s"] [shared] [permits = 3] [permits = note.permits()] [on_busy = error]
        [on_busy = skip] [on_busy = fallback(later)] [on_busy = defer("30s")] [on_lost = error]
        [on_lost = finish] [on_lost = undone] [release = background] [guard = _guard]
        [fence = _fence] [message = "order <id> is audited"] [message = "<note.text()> is audited"]
        [holder_note = "<note>"] [manager = installed()]
        [manager = if id > 0 { installed() } else { other() }] [map_err = std::convert::identity]
        [name = "orders.audit"] [crate = ::lockmacro_runtime] [policy = POLICY]
        // Refused: fences
    }
    wait_forever { [wait = forever] [shared] [permits = 3] [permits = note.permits()]
        [on_busy = error] [on_lost = error] [on_lost = finish] [on_lost = undone]
        [release = background] [guard = _guard] [fence = _fence] [message = "order <id> is audited"]
        [message = "<note.text()> is audited"] [holder_note = "<note>"] [manager = installed()]
        [manager = if id > 0 { installed() } else { other() }] [map_err = std::convert::identity]
        [name = "orders.audit"] [crate = ::lockmacro_runtime] [policy = POLICY]
        // Refused: skip fallback defer fences
    }
    shared { [shared] [on_busy = error] [on_busy = skip] [on_busy = fallback(later)]
        [on_busy = defer("30s")] [on_lost = error] [on_lost = finish] [on_lost = undone]
        [release = background] [guard = _guard] [fence = _fence] [message = "order <id> is audited"]
        [message = "<note.text()> is audited"] [holder_note = "<note>"] [manager = installed()]
        [manager = if id > 0 { installed() } else { other() }] [map_err = std::convert::identity]
        [name = "orders.audit"] [crate = ::lockmacro_runtime] [policy = POLICY]
        // Refused: permits permits_of_a_call fences
    }
    permits { [permits = 3] [on_busy = error] [on_busy = skip] [on_busy = fallback(later)]
        [on_busy = defer("30s")] [on_lost = error] [on_lost = finish] [on_lost = undone]
        [release = background] [guard = _guard] [fence = _fence] [message = "order <id> is audited"]
        [message = "<note.text()> is audited"] [holder_note = "<note>"] [manager = installed()]
        [manager = if id > 0 { installed() } else { other() }] [map_err = std::convert::identity]
        [name = "orders.audit"] [crate = ::lockmacro_runtime] [policy = POLICY]
        // Refused: fences
    }
    permits_of_a_call { [permits = note.permits()] [on_busy = error] [on_busy = skip]
        [on_busy = fallback(later)] [on_busy = defer("30s")] [on_lost = error] [on_lost = finish]
        [on_lost = undone] [release = background] [guard = _guard] [fence = _fence]
        [message = "order <id> is audited"] [message = "<note.text()> is audited"]
        [holder_note = "<note>"] [manager = installed()]
        [manager = if id > 0 { installed() } else { other() }] [map_err = std::convert::identity]
        [name = "orders.audit"] [crate = ::lockmacro_runtime] [policy = POLICY]
        // Refused: fences
    }
    on_busy { [on_busy = error] [on_lost = error] [on_lost = finish] [on_lost = undone]
        [release = background] [guard = _guard] [fence = _fence] [message = "order <id> is audited"]
        [message = "<note.text()> is audited"] [holder_note = "<note>"] [manager = installed()]
        [manager = if id > 0 { installed() } else { other() }] [map_err = std::convert::identity]
        [name = "orders.audit"] [crate = ::lockmacro_runtime] [policy = POLICY]
        // Refused: fences
    }
    skip { [on_busy = skip] [on_lost = error] [on_lost = finish] [on_lost = undone]
        [release = background] [guard = _guard] [fence = _fence] [holder_note = "<note>"]
        [manager = installed()] [manager = if id > 0 { installed() } else { other() }]
        [map_err = std::convert::identity] [name = "orders.audit"] [crate = ::lockmacro_runtime]
        [policy = POLICY]
        // Refused: fences message message_of_a_call
    }
    fallback { [on_busy = fallback(later)] [on_lost = error] [on_lost = finish] [on_lost = undone]
        [release = background] [guard = _guard] [fence = _fence] [holder_note = "<note>"]
        [manager = installed()] [manager = if id > 0 { installed() } else { other() }]
        [map_err = std::convert::identity] [name = "orders.audit"] [crate = ::lockmacro_runtime]
        [policy = POLICY]
        // Refused: fences message message_of_a_call
    }
    defer { [on_busy = defer("30s")] [on_lost = error] [on_lost = finish] [on_lost = undone]
        [release = background] [guard = _guard] [fence = _fence] [holder_note = "<note>"]
        [manager = installed()] [manager = if id > 0 { installed() } else { other() }]
        [map_err = std::convert::identity] [name = "orders.audit"] [crate = ::lockmacro_runtime]
        [policy = POLICY]
        // Refused: fences message message_of_a_call
    }
    on_lost { [on_lost = error] [release = background] [guard = _guard] [fence = _fence]
        [message = "order <id> is audited"] [message = "<note.text()> is audited"]
        [holder_note = "<note>"] [manager = installed()]
        [manager = if id > 0 { installed() } else { other() }] [map_err = std::convert::identity]
        [name = "orders.audit"] [crate = ::lockmacro_runtime] [policy = POLICY]
        // Refused: fences
    }
    finish { [on_lost = finish] [release = background] [guard = _guard] [fence = _fence]
        [message = "order <id> is audited"] [message = "<note.text()> is audited"]
        [holder_note = "<note>"] [manager = installed()]
        [manager = if id > 0 { installed() } else { other() }] [map_err = std::convert::identity]
        [name = "orders.audit"] [crate = ::lockmacro_runtime] [policy = POLICY]
        // Refused: fences
    }
    recovering { [on_lost = undone] [release = background] [guard = _guard] [fence = _fence]
        [message = "order <id> is audited"] [message = "<note.text()> is audited"]
        [holder_note = "<note>"] [manager = installed()]
        [manager = if id > 0 { installed() } else { other() }] [map_err = std::convert::identity]
        [name = "orders.audit"] [crate = ::lockmacro_runtime] [policy = POLICY]
        // Refused: fences
    }
    release { [release = background] [guard = _guard] [fence = _fence]
        [message = "order <id> is audited"] [message = "<note.text()> is audited"]
        [holder_note = "<note>"] [manager = installed()]
        [manager = if id > 0 { installed() } else { other() }] [map_err = std::convert::identity]
        [name = "orders.audit"] [crate = ::lockmacro_runtime] [policy = POLICY]
        // Refused: fences
    }
    guard { [guard = _guard] [fence = _fence] [message = "order <id> is audited"]
        [message = "<note.text()> is audited"] [holder_note = "<note>"] [manager = installed()]
        [manager = if id > 0 { installed() } else { other() }] [map_err = std::convert::identity]
        [name = "orders.audit"] [crate = ::lockmacro_runtime] [policy = POLICY]
        // Refused: fences
    }
    fence { [fence = _fence] [message = "order <id> is audited"]
        [message = "<note.text()> is audited"] [holder_note = "<note>"] [manager = installed()]
        [manager = if id > 0 { installed() } else { other() }] [map_err = std::convert::identity]
        [name = "orders.audit"] [crate = ::lockmacro_runtime] [policy = POLICY]
    }
    fences { [fence = [_order, _note]]
        // Refused: message message_of_a_call holder_note manager manager_of_branches map_err name
        // runtime policy
    }
    message { [message = "order <id> is audited"] [holder_note = "<note>"] [manager = installed()]
        [manager = if id > 0 { installed() } else { other() }] [map_err = std::convert::identity]
        [name = "orders.audit"] [crate = ::lockmacro_runtime] [policy = POLICY]
    }
    message_of_a_call { [message = "<note.text()> is audited"] [holder_note = "<note>"]
        [manager = installed()] [manager = if id > 0 { installed() } else { other() }]
        [map_err = std::convert::identity] [name = "orders.audit"] [crate = ::lockmacro_runtime]
        [policy = POLICY]
    }
    holder_note { [holder_note = "<note>"] [manager = installed()]
        [manager = if id > 0 { installed() } else { other() }] [map_err = std::convert::identity]
        [name = "orders.audit"] [crate = ::lockmacro_runtime] [policy = POLICY]
    }
    manager { [manager = installed()] [map_err = std::convert::identity] [name = "orders.audit"]
        [crate = ::lockmacro_runtime] [policy = POLICY]
    }
    manager_of_branches { [manager = if id > 0 { installed() } else { other() }]
        [map_err = std::convert::identity] [name = "orders.audit"] [crate = ::lockmacro_runtime]
        [policy = POLICY]
    }
    map_err { [map_err = std::convert::identity] [name = "orders.audit"]
        [crate = ::lockmacro_runtime] [policy = POLICY]
    }
    name { [name = "orders.audit"] [crate = ::lockmacro_runtime] [policy = POLICY]
    }
    runtime { [crate = ::lockmacro_runtime] [policy = POLICY]
    }
    policy { [policy = POLICY]
    }
}
