; The MLPerf Tiny device under test: reads commands up to '%', answers, says m-ready.
; Texts and parameters lie in the page at the end of memory, see layout.py.

.var page PAGE
.var c              ; a character
.var p              ; pointer: text to print or compare, table
.var q              ; pointer: end of the token
.var t              ; pointer: start of the token
.var n              ; a number
.var i
.var power
.var digit
.var seen           ; a digit has been printed
.var line
.var failed         ; the accelerator reported an error
.var loaded         ; bytes of the input received
.var expected       ; bytes of the input announced; 0: none
.var target         ; next byte to write
.var word
.var runs
.var warmups
.var largest
.var sum
.var value
.var divisor
.var numerator
.var k
.var table
.var negative
.var float          ; inputs are float32, results a mean squared error
.var top 0x80000000
.var ones 0xffffffff
.var mantissa 0x7fffff

.macro text         ; p = a text of the page
    ldi $
    add page
    st p
.end
.macro say          ; print a text
    text $
    call print
.end
.macro param        ; A = a parameter
    ldi $
    add page
    st p
    mrw p
.end
.macro next         ; pointer += 1
    ld $
    adi 1
    st $
.end
.macro is           ; A = whether the token is a word
    text $
    call match
.end

    param P_LINE_ADDRESS
    st line
    param P_RAW_FLOAT
    st float
    param P_TABLE_ADDRESS
    st table
    ldi 0
    st loaded
    st expected
    say T_INIT
ready:
    say T_READY
    call read_line
    ld line
    st t
    is T_C_NAME
    jnz name
    is T_C_TIMESTAMP
    jnz timestamp
    is T_C_PROFILE
    jnz profile
    is T_C_HELP
    jnz help
    is T_C_DB
    jnz db
    is T_C_INFER
    jnz infer
    is T_C_RESULTS
    jnz results
    say T_E_UNKNOWN
    ld line
    st p
    call print
    say T_END
    jmp ready

name:
    say T_NAME
    say T_DEVICE
    say T_END
    jmp ready
profile:
    say T_PROFILE
    say T_MODEL
    say T_END
    jmp ready
help:
    say T_HELP
    jmp ready
timestamp:
    call lap
    jmp ready

; ---- input
db:
    call next_token
    mrb t
    jnz db_sub
    say T_E_DB
    jmp ready
db_sub:
    is T_C_LOAD
    jnz db_load
    is T_C_PRINT
    jnz db_print
; hexadecimal digits
    ld t
    st q
hex_length:
    mrb q
    jz hex_measured
    next q
    jmp hex_length
hex_measured:
    ld q
    sub t
    st n
    ldi 1
    and n
    jz hex_byte
    say T_E_DIGITS
    jmp ready
hex_byte:
    mrb t
    jz ready
    call hex_digit
    jn hex_bad
    shl
    shl
    shl
    shl
    st value
    mrb t
    call hex_digit
    jn hex_bad
    or value
    st value
    ld loaded           ; digits beyond the end are ignored
    sub expected
    jz ready
    ld value
    mwb target
    next target
    next loaded
    sub expected
    jnz hex_byte
    say T_LOADED
    jmp ready
hex_bad:
    say T_E_HEX
    jmp ready

hex_digit:              ; A: a character; A = its value or negative; t += 1
    st c
    next t
    ld c
    adi -48
    jn hex_none
    adi -10
    jn hex_number
    ld c
    st digit
    ldi 0x20            ; small letters and capitals alike
    or digit
    adi -97
    jn hex_none
    adi -6
    jn hex_letter
hex_none:
    ldi 0
    adi -1
    ret
hex_number:
    adi 10
    ret
hex_letter:
    adi 16
    ret

db_load:
    call next_token
    call number
    ld n
    jnz load_some
    say T_E_ZERO
    jmp ready
load_some:
    param P_RAW_BYTES
    st value
    sub n
    jz load_right
    say T_E_SIZE
    ld value
    st n
    call decimal
    say T_BYTES
    jmp ready
load_right:
    ld n
    st expected
    ldi 0
    st loaded
    param P_RAW_ADDRESS
    st target
    say T_EXPECTING
    call decimal
    say T_BYTES
    jmp ready

db_print:
    param P_RAW_ADDRESS
    st q
    ldi 0
    st i
print_byte:
    ld i
    sub loaded
    jz ready
    ldi 7
    and i
    jnz print_dash
    say T_BUFFER
    jmp print_hex
print_dash:
    ldi '-'
    txb
print_hex:
    mrb q
    shr
    shr
    shr
    shr
    call print_nibble
    mrb q
    call print_nibble
    next q
    next i
    sub loaded
    jz print_line
    ldi 7
    and i
    jnz print_byte
print_line:
    say T_NEWLINE
    jmp print_byte

print_nibble:           ; low four bits of A
    st c
    ldi 15
    and c
    adi -10
    jn nibble_digit
    adi 39
nibble_digit:
    adi 58
    txb
    ret

; ---- inference
infer:
    ldi 1
    st runs
    ldi 10
    st warmups
    call next_token
    mrb t
    jz infer_numbers
    call number
    ld n
    st runs
    call next_token
    mrb t
    jz infer_numbers
    call number
    ld n
    st warmups
infer_numbers:
    ld runs
    jnz infer_input
    say T_E_INFER
    jmp ready
infer_input:
    ld expected
    jz infer_missing
    sub loaded
    jz infer_pack
infer_missing:
    say T_E_INPUT
    jmp ready
infer_pack:
    ldi 0
    st failed
    call pack
    say T_WARMUP
    ld warmups
    st n
    call decimal
    say T_NEWLINE
    ld warmups
    st i
warm:
    ld i
    jz warmed
    adi -1
    st i
    call run
    jmp warm
warmed:
    ld failed
    jnz ready
    say T_WARMED
    say T_START
    ld runs
    st n
    call decimal
    say T_NEWLINE
    call lap
    ld runs
    st i
inference:
    ld i
    jz inferred
    adi -1
    st i
    call run
    jmp inference
inferred:
    ld failed
    jnz ready
    call lap
    say T_DONE
results:
    call print_results
    jmp ready

lap:
    tim
    st n
    say T_LAP
    call decimal
    say T_NEWLINE
    ret

pack:                   ; the raw input in the layout the program reads
    param P_PACKED_ADDRESS
    st target
    param P_PACKED_BYTES
    add target
    st k                ; the end
    param P_RAW_XOR
    st c
    param P_RAW_ADDRESS
    st q
    param P_GATHER_ADDRESS
    st p
pack_byte:
    ld target
    sub k
    jz pack_done
    mrw p
    jn pack_write       ; a constant
    st word
    call quantized
pack_write:
    mwb target
    next target
    ld p
    adi 4
    st p
    jmp pack_byte
pack_done:
    ret

quantized:              ; A = the int8 value of raw element `word`
    ld float
    jnz quantize
    ld word
    add q
    st word
    mrb word
    xor c
    ret
quantize:               ; how many thresholds lie at or below a float32
    ld word
    shl
    shl
    add q
    st word
    mrw word
    jn below_zero       ; floats in order as unsigned numbers
    xor top
    jmp ordered
below_zero:
    xor ones
ordered:
    st numerator
    ldi 0
    st value
    ldi 128
    st divisor
threshold:
    ld value
    add divisor
    adi -1
    shl
    shl
    add table
    st word
    mrw word
    st sum
    ld numerator
    sub sum
    jc threshold_above
    ld value
    add divisor
    st value
threshold_above:
    ld divisor
    shr
    st divisor
    jnz threshold
    ld value
    adi -128
    ret

run:                    ; one inference; an error ends the command
    param P_PROGRAM_ADDRESS
    rwr R_PROGRAM_ADDRESS
    param P_PROGRAM_LENGTH
    rwr R_PROGRAM_LENGTH
    ldi 0
    rwr R_MEMORY_BASE
    param P_MEMORY_BYTES
    rwr R_MEMORY_BYTES
    ldi 1
    rwr R_CONTROL
run_wait:
    rrd R_STATUS
    st word
    ldi 6               ; done, error
    and word
    jz run_wait
    ldi 4
    and word
    jnz run_failed
    ret
run_failed:
    rrd R_ERROR
    st n
    ldi 2
    rwr R_CONTROL
    say T_E_CORE
    call decimal
    say T_END
    ldi 1
    st failed
    ldi 0               ; no further runs
    st i
    ret

; ---- results: softmax of the int8 outputs in steps of 1/256, printed with three digits
print_results:
    ld float
    jnz print_error
    ldi 0
    st largest
    call first_output
most:
    call output
    st value
    sub largest
    jc most_next
    ld value
    st largest
most_next:
    call next_output
    jnz most
    ldi 0
    st sum
    call first_output
total:
    call exponential
    add sum
    st sum
    call next_output
    jnz total
    say T_RESULTS
    call first_output
share:
    call exponential    ; (value * 256 + sum / 2) / sum
    st numerator
    ldi 8
    st k
share_shift:
    ld numerator
    shl
    st numerator
    ld k
    adi -1
    st k
    jnz share_shift
    ld sum
    shr
    add numerator
    st numerator
    ld sum
    shl
    shl
    shl
    shl
    shl
    shl
    shl
    shl
    st divisor
    ldi 9
    st k
    ldi 0
    st value
share_bit:
    ld value
    shl
    st value
    ld numerator
    sub divisor
    jc share_zero
    st numerator
    next value
share_zero:
    ld divisor
    shr
    st divisor
    ld k
    adi -1
    st k
    jnz share_bit
    ld value            ; at most 255
    adi -256
    jn share_print
    ldi 255
    st value
share_print:
    ld value            ; thousandths
    call times_1000
    shr
    shr
    shr
    shr
    shr
    shr
    shr
    shr
    st n
    ldi '0'
    txb
    call thousandths
    call next_output
    jz results_end
    ldi ','
    txb
    jmp share
results_end:
    say T_END
    ret

times_1000:             ; A *= 1024 - 16 - 8
    shl
    shl
    shl
    st word
    shl
    st n
    shl
    shl
    shl
    shl
    shl
    shl
    sub word
    sub n
    ret

thousandths:            ; print n / 1000
    ldi '.'
    txb
    ldi 100
    st power
    call one_digit
    ldi 10
    st power
    call one_digit
    ldi 1
    st power
    jmp one_digit

; ---- results: mean squared distance of the float32 input and the output, in steps of 1/256
print_error:
    ldi 0
    st sum
    call first_output
    param P_RAW_ADDRESS
    st t
error_element:
    call output
    shl
    shl
    st word
    param P_VALUES_ADDRESS
    add word
    st word
    mrw word
    st value
    call fixed_point
    sub value
    st numerator
    jn error_negative
    jmp error_square
error_negative:
    ldi 0
    sub numerator
    st numerator
error_square:
    st divisor
    ldi 0
    st value
error_bit:
    ldi 1
    and divisor
    jz error_zero
    ld value
    add numerator
    st value
error_zero:
    ld numerator
    shl
    st numerator
    ld divisor
    shr
    st divisor
    jnz error_bit
    ld value
    shr
    shr
    shr
    shr
    shr
    shr
    shr
    shr
    add sum
    st sum
    ld t
    adi 4
    st t
    call next_output
    jnz error_element
    say T_RESULTS
    param P_MEAN_DIVISOR
    st divisor
    call divide
    ld value
    st n
    call decimal
    ld sum              ; what remains
    call times_1000
    st sum
    call divide
    ld value
    st n
    call thousandths
    jmp results_end

divide:                 ; value = sum / divisor, sum %= divisor
    ldi 0
    st value
divide_step:
    ld sum
    sub divisor
    jc divide_end
    st sum
    next value
    jmp divide_step
divide_end:
    ret

fixed_point:            ; A = the float32 at t times 256, rounded
    mrw t
    st word
    and top
    st negative
    ld word
    and mantissa
    st digit
    ldi 23
    st k
    ld word
    xor negative
exponent:
    shr
    st word
    ld k
    adi -1
    st k
    jz exponent_found
    ld word
    jmp exponent
exponent_found:
    ld word             ; shift right by 142 - exponent
    adi -142
    st k
    jn small
    ldi 0x7ff           ; 2^15 and more: as good as infinite
    shl
    shl
    shl
    shl
    jmp signed
small:
    adi 25
    jn nothing          ; below half a step
    ld mantissa
    adi 1
    or digit
    st digit
    jmp shift_next
shift:
    ld digit
    shr
    st digit
    next k
shift_next:
    ld k                ; one bit is left for rounding
    adi 1
    jnz shift
    ld digit
    adi 1
    shr
    jmp signed
nothing:
    ldi 0
signed:
    st digit
    ld negative
    jz positive
    ldi 0
    sub digit
    ret
positive:
    ld digit
    ret

one_digit:              ; print n / power, n %= power
    ldi '0'
    st digit
one_sub:
    ld n
    sub power
    jc one_print
    st n
    next digit
    jmp one_sub
one_print:
    ld digit
    txb
    ret

first_output:
    param P_OUTPUTS
    st i
    param P_OUTPUTS_ADDRESS
    st q
    ret
next_output:            ; A = outputs that remain
    ld q
    adi 4
    st q
    ld i
    adi -1
    st i
    ret
output:                 ; A = this output + 128
    mrw q
    st word
    mrb word
    st c
    ldi 0x80
    xor c
    ret
exponential:            ; A = exp of this output's distance from the largest
    call output
    st value
    ld largest
    sub value
    shl
    shl
    st word
    ld word
    add table
    st word
    mrw word
    ret

; ---- text
read_line:
    ld line
    st q
read_char:
    rxb
    st c
    adi -37             ; '%' ends the command
    jz read_end
    ld c
    adi -10
    jz read_char
    ld c
    adi -13
    jz read_char
    ld q                ; what is too long is cut
    sub line
    adi -120
    jn read_store
    jmp read_char
read_store:
    ld c
    mwb q
    next q
    jmp read_char
read_end:
    ldi 0
    mwb q
    ret

print:                  ; the text at p
    mrb p
    jz print_end
    txb
    next p
    jmp print
print_end:
    ret

match:                  ; A = whether the token at t is the text at p; q: behind it
    ld t
    st q
match_char:
    mrb p
    st c
    jz match_end
    mrb q
    sub c
    jnz match_no
    next p
    next q
    jmp match_char
match_end:
    mrb q
    jz match_yes
    adi -32
    jnz match_no
match_yes:
    ldi 1
    ret
match_no:
    ldi 0
    ret

next_token:             ; t = the token after q
    mrb q
    adi -32
    jnz token_found
    next q
    jmp next_token
token_found:
    ld q
    st t
    ret

number:                 ; n = the decimal number at t; q: behind it
    ld t
    st q
    ldi 0
    st n
number_digit:
    mrb q
    adi -48
    jn number_end
    st c
    adi -10
    jn number_take
number_end:
    ret
number_take:
    ld n
    shl
    st n
    shl
    shl
    add n
    add c
    st n
    next q
    jmp number_digit

decimal:                ; print n
    param P_POWERS_ADDRESS
    st p
    ldi 0
    st seen
decimal_digit:
    mrw p
    st power
    ldi 0
    st digit
decimal_sub:
    ld n
    sub power
    jc decimal_print
    st n
    next digit
    jmp decimal_sub
decimal_print:
    ld power            ; the last digit is printed even if it is 0
    adi -1
    jz decimal_last
    ld digit
    or seen
    jz decimal_next
decimal_last:
    ldi 1
    st seen
    ld digit
    adi 48
    txb
decimal_next:
    ld p
    adi 4
    st p
    ld power
    adi -1
    jnz decimal_digit
    ret
