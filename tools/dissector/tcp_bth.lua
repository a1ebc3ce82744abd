-- SPDX-License-Identifier: BSD-3-Clause
--
-- Wireshark: the tcp_bth option (kind 253, ExID 0x5150) of queue pairs on TCP.
-- Layouts, limits and the order of checks are those of include/tcp_qp/tcp_bth.h.
--
--   tshark -X lua_script:tcp_bth.lua -r trace.pcap -V
--   wireshark: copy it to the personal plugin folder (Help, About, Folders)
--
-- A heuristic TCP dissector claims the payload of segments that carry the
-- option and says where in which message it lies; a post-dissector decodes the
-- option of every packet, also of pure ACKs.  Both only read: no field of
-- Wireshark's own TCP dissector is changed.

local KIND, EXID = 253, 0x5150
local HEAD, V0, V1, TS, OPT_MAX = 4, 20, 12, 8, 40
local F_VER, F_TIMESTAMP, F_MORE, F_RTR, F_RTR_ACK, F_ICRC, F_SOLICITED = 0x03, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80
local SEQ_SPACE = 4294967296

-- opcodes: begin
local opcodes = {
	[0x00] = "SEND First",
	[0x01] = "SEND Middle",
	[0x02] = "SEND Last",
	[0x03] = "SEND Last with Immediate",
	[0x04] = "SEND Only",
	[0x05] = "SEND Only with Immediate",
	[0x06] = "RDMA WRITE First",
	[0x07] = "RDMA WRITE Middle",
	[0x08] = "RDMA WRITE Last",
	[0x09] = "RDMA WRITE Last with Immediate",
	[0x0a] = "RDMA WRITE Only",
	[0x0b] = "RDMA WRITE Only with Immediate",
	[0x0c] = "RDMA READ Request",
	[0x0d] = "RDMA READ Response First",
	[0x0e] = "RDMA READ Response Middle",
	[0x0f] = "RDMA READ Response Last",
	[0x10] = "RDMA READ Response Only",
	[0x11] = "Acknowledge",
	[0x12] = "ATOMIC Acknowledge",
	[0x13] = "CmpSwap",
	[0x14] = "FetchAdd",
	[0x15] = "Terminate",
	[0x16] = "SEND Last with Invalidate",
	[0x17] = "SEND Only with Invalidate",
	[0x18] = "SEND Train",
	[0x19] = "RDMA WRITE Train",
	[0x1a] = "Lengths",
	[0x1b] = "SEND Mixed Train",
	[0x1c] = "Targets",
	[0x1d] = "RDMA WRITE Mixed Train",
}
local OP_COUNT, TRAIN, WRITE_TRAIN = 0x1e, 0x18, 0x19
local MIXED_TRAIN = { [0x1b] = true, [0x1d] = true }
local FIRST = { [0x00] = true, [0x06] = true, [0x0d] = true }
local MIDDLE = { [0x01] = true, [0x07] = true, [0x0e] = true }
local LAST = { [0x02] = true, [0x03] = true, [0x08] = true, [0x09] = true, [0x0f] = true, [0x16] = true }
local IMM = { [0x03] = true, [0x05] = true }
local INVALIDATE = { [0x16] = true, [0x17] = true }
local WITH_IMM = { [0x09] = true, [0x0b] = true }
-- Message numbers of these are a space of their own.
local TAGGED = { [0x06] = true, [0x07] = true, [0x08] = true, [0x09] = true, [0x0a] = true, [0x0b] = true, [0x0d] = true, [0x0e] = true, [0x0f] = true, [0x10] = true, [0x19] = true, [0x1d] = true }
-- opcodes: end
local TRAIN_MAX_MESSAGES = 16384

local bth = Proto("tcp_bth", "Queue Pair Option on TCP (tcp_bth)")
local f = bth.fields
local function field(name, make, label, ...) f[name] = make("tcp_bth." .. name, label, ...) end

field("len", ProtoField.uint8, "Option length", base.DEC)
field("exid", ProtoField.uint16, "Experiment identifier", base.HEX)
field("flags", ProtoField.uint8, "Flags", base.HEX)
field("version", ProtoField.uint8, "Version", base.DEC, nil, F_VER)
f.timestamp_present = ProtoField.bool("tcp_bth.flags.timestamp", "Timestamps folded in", 8, nil, F_TIMESTAMP)
f.more_segments = ProtoField.bool("tcp_bth.flags.more", "Another message follows in this burst", 8, nil, F_MORE)
f.rtr = ProtoField.bool("tcp_bth.flags.rtr", "Ready to receive", 8, nil, F_RTR)
f.rtr_ack = ProtoField.bool("tcp_bth.flags.rtr_ack", "Saw the peer's ready to receive", 8, nil, F_RTR_ACK)
f.icrc_present = ProtoField.bool("tcp_bth.flags.icrc", "ICRC present", 8, nil, F_ICRC)
f.solicited = ProtoField.bool("tcp_bth.flags.solicited", "Solicited", 8, nil, F_SOLICITED)
field("opcode", ProtoField.uint8, "Opcode", base.HEX, opcodes)
field("msn", ProtoField.uint16, "Message sequence number", base.DEC)
field("mbo", ProtoField.uint24, "Offset of this segment in its message", base.DEC)
field("segno", ProtoField.uint8, "Number of this segment in its burst", base.DEC)
field("icrc", ProtoField.uint32, "ICRC", base.HEX)
field("start_seq", ProtoField.uint32, "Sequence number of the message's first byte", base.DEC)
field("length", ProtoField.uint32, "Message length", base.DEC)
field("tsval", ProtoField.uint32, "Timestamp value", base.DEC)
field("tsecr", ProtoField.uint32, "Timestamp echo reply", base.DEC)
field("imm", ProtoField.uint32, "Immediate", base.HEX)
field("ieth", ProtoField.uint32, "Key to invalidate", base.HEX)
field("ext4", ProtoField.uint32, "Extension (meaning is in the last segment)", base.HEX)
field("train", ProtoField.uint32, "Bytes of all of the train's messages", base.DEC)
field("aeth", ProtoField.uint32, "AETH", base.HEX)
f.aeth_syndrome = ProtoField.uint8("tcp_bth.aeth.syndrome", "Syndrome", base.HEX)
f.aeth_trains = ProtoField.bool("tcp_bth.aeth.trains", "Takes trains", 32, nil, 0x10000)
f.aeth_write_trains = ProtoField.bool("tcp_bth.aeth.write_trains", "Takes trains of WRITEs", 32, nil, 0x20000)
f.aeth_mixed_trains = ProtoField.bool("tcp_bth.aeth.mixed_trains", "Takes mixed trains", 32, nil, 0x40000)
f.aeth_write_mixed_trains = ProtoField.bool("tcp_bth.aeth.write_mixed_trains", "Takes mixed trains of WRITEs", 32, nil, 0x80000)
f.aeth_room = ProtoField.bool("tcp_bth.aeth.room", "Has room for sends that are acknowledged late", 32, nil, 0x100000)
f.train_step = ProtoField.uint16("tcp_bth.train.step", "From one target to the next, in lengths", base.DEC)
f.train_messages = ProtoField.uint16("tcp_bth.train.messages", "Messages", base.DEC)
f.aeth_limit = ProtoField.uint16("tcp_bth.aeth.msn_limit", "First message without a posted receive", base.DEC)
field("va", ProtoField.uint64, "Virtual address of the message's first byte", base.HEX)
field("rkey", ProtoField.uint32, "Remote key", base.HEX)
field("dma_length", ProtoField.uint32, "DMA length", base.DEC)
-- computed, not on the wire
field("offset", ProtoField.uint32, "Payload's offset in its message or train", base.DEC)
field("payload", ProtoField.uint32, "Payload bytes", base.DEC)
field("last", ProtoField.bool, "Ends its message")
field("error", ProtoField.string, "Refused as")
field("mismatch", ProtoField.bool, "Offset and sequence number disagree")
field("data", ProtoField.bytes, "Payload")

local ef_error = ProtoExpert.new("tcp_bth.expert.refused", "tcp_bth option is refused: plain TCP for a receiver",
	expert.group.MALFORMED, expert.severity.ERROR)
local ef_mismatch = ProtoExpert.new("tcp_bth.expert.mismatch", "Offset and sequence number disagree with the message's other segments",
	expert.group.PROTOCOL, expert.severity.ERROR)
bth.experts = { ef_error, ef_mismatch }

local get_option = Field.new("tcp.options")
local get_seq = Field.new("tcp.seq_raw")
local get_len = Field.new("tcp.len")
local get_stream = Field.new("tcp.stream")
local get_srcport = Field.new("tcp.srcport")

-- ---- parse: one option into a table, as tcp_bth_parse() ----

local function before(a, b) return (a - b) % SEQ_SPACE >= SEQ_SPACE / 2 end

-- Where a tcp_bth option starts in the options, or nil; second result: there is another.
local function find(options)
	local at, i = nil, 0
	while i < options:len() do
		local kind = options:get_index(i)
		if kind == 0 then break end
		if kind == 1 then
			i = i + 1
		else
			if i + 2 > options:len() then break end
			local len = options:get_index(i + 1)
			if len < 2 or len > options:len() - i then break end
			if kind == KIND and len >= HEAD and options:get_index(i + 2) * 256 + options:get_index(i + 3) == EXID then
				if at then return at, true end
				at = i
			end
			i = i + len
		end
	end
	return at, false
end

-- Bytes of the stream that the option describes, or nil if there is no such train.
local function described(o, r)
	if r.opcode == WRITE_TRAIN then
		local messages = o(r.ext_at + 14, 2):uint()
		local bytes = messages * r.length
		if bytes == 0 or messages > TRAIN_MAX_MESSAGES or bytes >= SEQ_SPACE then return nil end
		return bytes
	end
	if r.opcode ~= TRAIN and not MIXED_TRAIN[r.opcode] then return r.length end
	local bytes = o(r.ext_at, 4):uint()
	if MIXED_TRAIN[r.opcode] then return bytes > 0 and bytes or nil end
	if r.length == 0 or bytes < r.length or bytes % r.length ~= 0 or bytes / r.length > TRAIN_MAX_MESSAGES then return nil end
	return bytes
end

-- @o: the option as a TvbRange.  Sets r.error to a name of enum tcp_bth_error.
local function parse(o, seq, payload)
	local r = { len = o(1, 1):uint(), payload = payload, ext = 0 }
	if o:len() < r.len or r.len < HEAD + V1 or r.len > OPT_MAX then
		r.error = "LENGTH"
		return r
	end
	r.flags, r.opcode, r.msn = o(4, 1):uint(), o(5, 1):uint(), o(6, 2):uint()
	r.version = r.flags % 4
	r.timestamps = math.floor(r.flags / F_TIMESTAMP) % 2 == 1
	local icrc = math.floor(r.flags / F_ICRC) % 2 == 1
	if r.version > 1 then
		r.error = "VERSION"
		return r
	end
	if r.version == 1 and icrc then
		r.error = "RESERVED"
		return r
	end
	if r.opcode >= OP_COUNT then
		r.error = "OPCODE"
		return r
	end
	local fixed = HEAD + (r.version == 0 and V0 or V1 + (r.timestamps and TS or 0))
	r.ext = r.len - fixed
	if r.ext ~= 0 and r.ext ~= 4 and r.ext ~= 16 then
		r.error = "LENGTH"
		return r
	end
	r.ext_at = fixed
	if r.version == 0 and (r.opcode == TRAIN or r.opcode == WRITE_TRAIN or MIXED_TRAIN[r.opcode]) then
		r.error = "OPCODE"
		return r
	end
	if r.version == 0 then
		r.mbo = o(8, 3):uint()
		r.offset = r.mbo
		r.start_seq = (seq - r.mbo) % SEQ_SPACE
		r.last = LAST[r.opcode] or not (FIRST[r.opcode] or MIDDLE[r.opcode])
		if payload > 0 and r.mbo > 0 and (FIRST[r.opcode] or r.last and not LAST[r.opcode]) then r.error = "RANGE" end
		return r
	end
	r.start_seq, r.length = o(8, 4):uint(), o(12, 4):uint()
	if FIRST[r.opcode] or MIDDLE[r.opcode] or LAST[r.opcode] then
		r.error = "OPCODE"
		return r
	end
	if (r.opcode == TRAIN or MIXED_TRAIN[r.opcode]) and r.ext ~= 4 or r.opcode == WRITE_TRAIN and r.ext ~= 16 then
		r.error = "LENGTH"
		return r
	end
	r.bytes = described(o, r)
	if not r.bytes then
		r.error = "RANGE"
	elseif payload > 0 then
		r.offset = (seq - r.start_seq) % SEQ_SPACE
		r.last = r.offset + payload == r.bytes
		if r.offset > r.bytes or payload > r.bytes - r.offset then r.error = "RANGE" end
	end
	return r
end

-- ---- the messages seen: all segments of one must name the same start ----

local messages, verdicts = {}, {}

function bth.init() messages, verdicts = {}, {} end

-- Message numbers wrap, so two starts conflict only if their messages overlap.
local function conflicts(known, r, end_seq)
	if known.start_seq == r.start_seq then return false end
	local known_bytes = (known.end_seq - known.start_seq) % SEQ_SPACE
	local bytes = (end_seq - r.start_seq) % SEQ_SPACE
	if before(known.start_seq, r.start_seq) then return (r.start_seq - known.start_seq) % SEQ_SPACE < known_bytes end
	return (known.start_seq - r.start_seq) % SEQ_SPACE < bytes
end

local function check(r, seq, stream, port, frame)
	if r.error or r.payload == 0 then return end
	local known_verdict = verdicts[frame]
	if known_verdict ~= nil then
		r.mismatch = known_verdict
		return
	end
	local end_seq = (r.version == 1 and r.start_seq + r.bytes or seq + r.payload) % SEQ_SPACE
	local key = string.format("%d:%d:%s:%d", stream, port, TAGGED[r.opcode] and "t" or "u", r.msn)
	local known = messages[key]
	r.mismatch = known ~= nil and conflicts(known, r, end_seq)
	verdicts[frame] = r.mismatch
	if r.mismatch then return end
	if known and known.start_seq == r.start_seq then
		if before(known.end_seq, end_seq) then known.end_seq = end_seq end
	else
		messages[key] = { start_seq = r.start_seq, end_seq = end_seq }
	end
end

-- The option of this packet: table, TvbRange; nil if there is none.
local function of_packet(pinfo)
	local options, seq, len, stream, port = get_option(), get_seq(), get_len(), get_stream(), get_srcport()
	if not (options and seq and len and stream and port) then return nil end
	local at, twice = find(options.value)
	if not at then return nil end
	local o = options.range(at, math.min(options.value:get_index(at + 1), options.range:len() - at))
	local r = parse(o, seq.value, len.value)
	if twice then r.error = "TWICE" end
	check(r, seq.value, stream.value, port.value, pinfo.number)
	return r, o
end

-- ---- show ----

local function summary(r)
	if r.error then return "refused: " .. r.error end
	local text = string.format("%s, msn %d", opcodes[r.opcode], r.msn)
	if r.offset then text = text .. string.format(", offset %d", r.offset) end
	if r.bytes and r.payload > 0 then text = text .. string.format(" of %d", r.bytes) end
	if r.opcode == TRAIN or r.opcode == WRITE_TRAIN then text = text .. string.format(" in %d messages", r.bytes / r.length) end
	if r.mismatch then text = text .. ", MISMATCH" end
	return text
end

local function show_flags(tree, o)
	local flags = tree:add(f.flags, o(4, 1))
	for _, name in ipairs({ "version", "timestamp_present", "more_segments", "rtr", "rtr_ack", "icrc_present", "solicited" }) do
		flags:add(f[name], o(4, 1))
	end
end

local function show_extension(tree, o, r)
	local e = o(r.ext_at, r.ext)
	if r.ext == 16 then
		tree:add(f.va, e(0, 8))
		tree:add(f.rkey, e(8, 4))
		local word = tree:add(WITH_IMM[r.opcode] and f.imm or f.dma_length, e(12, 4))
		if r.opcode == WRITE_TRAIN then
			word:add(f.train_step, e(12, 2))
			word:add(f.train_messages, e(14, 2))
		end
	elseif IMM[r.opcode] then
		tree:add(f.imm, e)
	elseif INVALIDATE[r.opcode] then
		tree:add(f.ieth, e)
	elseif r.opcode == TRAIN or MIXED_TRAIN[r.opcode] then
		tree:add(f.train, e)
	elseif r.opcode == 0x11 or r.opcode == 0x12 then
		local aeth = tree:add(f.aeth, e)
		aeth:add(f.aeth_syndrome, e(0, 1))
		if r.opcode == 0x11 then
			aeth:add(f.aeth_trains, e)
			aeth:add(f.aeth_write_trains, e)
			aeth:add(f.aeth_mixed_trains, e)
			aeth:add(f.aeth_write_mixed_trains, e)
			aeth:add(f.aeth_room, e)
		end
		aeth:add(f.aeth_limit, e(2, 2))
	else
		tree:add(f.ext4, e)
	end
end

local function show_layout(tree, o, r)
	if r.version == 0 then
		tree:add(f.mbo, o(8, 3))
		tree:add(f.segno, o(11, 1))
		tree:add(f.icrc, o(12, 4))
	else
		tree:add(f.start_seq, o(8, 4))
		tree:add(f.length, o(12, 4))
	end
	if r.timestamps then
		tree:add(f.tsval, o(16, 4))
		tree:add(f.tsecr, o(20, 4))
	end
	if r.ext > 0 then show_extension(tree, o, r) end
end

local function show_computed(tree, r)
	tree:add(f.payload, r.payload):set_generated()
	if r.payload == 0 or r.error then return end
	if r.version == 0 then tree:add(f.start_seq, r.start_seq):set_generated() end
	tree:add(f.offset, r.offset):set_generated()
	tree:add(f.last, r.last):set_generated()
	if r.mismatch then
		tree:add(f.mismatch, true):set_generated()
		tree:add_proto_expert_info(ef_mismatch)
	end
end

local function show(tree, o, r)
	local t = tree:add(bth, o, "Queue Pair Option: " .. summary(r))
	t:add(f.len, o(1, 1))
	t:add(f.exid, o(2, 2))
	if r.flags then
		show_flags(t, o)
		t:add(f.opcode, o(5, 1))
		t:add(f.msn, o(6, 2))
	end
	if r.error then
		t:add(f.error, r.error):set_generated()
		t:add_proto_expert_info(ef_error)
	end
	if r.ext_at then show_layout(t, o, r) end
	show_computed(t, r)
end

function bth.dissector(_, pinfo, tree)
	local r, o = of_packet(pinfo)
	if not r then return end
	show(tree, o, r)
	if pinfo.cols.protocol then pinfo.cols.info:prepend("[" .. summary(r) .. "] ") end
end
register_postdissector(bth)

-- The payload itself: ours as soon as the segment carries a good option.
local payload = Proto("tcp_qp", "Queue Pair Payload")

function payload.dissector(tvb, pinfo, tree)
	pinfo.cols.protocol = "TCP-QP"
	local r = of_packet(pinfo)
	local t = tree:add(payload, tvb(), "Queue Pair Payload" .. (r and ": " .. summary(r) or ""))
	t:add(f.data, tvb())
	return tvb:len()
end

payload:register_heuristic("tcp", function(tvb, pinfo, tree)
	local r = of_packet(pinfo)
	if not r or r.error or r.payload == 0 then return false end
	payload.dissector(tvb, pinfo, tree)
	return true
end)
