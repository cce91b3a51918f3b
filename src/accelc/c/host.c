/* Packs inputs, starts the accelerator, waits, unpacks outputs. C99, no library but string.h. */

/* How an int8 tensor [n][h][w][c] lies in the accelerator's memory: as
 * [n / batch][lines][columns][blocks][batch][block_in], where the channels of a pixel are a window of
 * patch_lines x patch_columns input pixels (one, for an ordinary tensor), and what is missing is 0. */
struct layout {
    uint32_t address;
    int32_t n, h, w, c;
    int32_t batch, block_in, blocks, lines, columns;
    int32_t patch_lines, patch_columns;
    int32_t line_step, column_step, line_dilation, column_dilation, top, left;
    int8_t pad_value;
};

static uint32_t packed_bytes(const struct layout *l) {
    uint32_t groups = (uint32_t)((l->n + l->batch - 1) / l->batch);
    return groups * (uint32_t)(l->lines * l->columns * l->blocks * l->batch * l->block_in);
}

static int8_t element(const struct layout *l, const int8_t *tensor, int32_t n, int32_t line,
                      int32_t column, int32_t channel) {
    int32_t pixel = channel / l->c;
    int32_t y = line * l->line_step + pixel / l->patch_columns * l->line_dilation - l->top;
    int32_t x = column * l->column_step + pixel % l->patch_columns * l->column_dilation - l->left;
    if (n >= l->n || pixel >= l->patch_lines * l->patch_columns) {
        return 0;
    }
    if (y < 0 || y >= l->h || x < 0 || x >= l->w) {
        return l->pad_value;
    }
    return tensor[((n * l->h + y) * l->w + x) * l->c + channel % l->c];
}

static void pack(const struct layout *l, const int8_t *tensor, int8_t *packed) {
    for (int32_t n0 = 0; n0 < l->n; n0 += l->batch)
        for (int32_t line = 0; line < l->lines; line++)
            for (int32_t column = 0; column < l->columns; column++)
                for (int32_t block = 0; block < l->blocks; block++)
                    for (int32_t b = 0; b < l->batch; b++)
                        for (int32_t i = 0; i < l->block_in; i++)
                            *packed++ = element(l, tensor, n0 + b, line, column,
                                                block * l->block_in + i);
}

static void unpack(const struct layout *l, const int8_t *packed, int8_t *tensor) {
    for (int32_t n0 = 0; n0 < l->n; n0 += l->batch)
        for (int32_t y = 0; y < l->h; y++)
            for (int32_t x = 0; x < l->w; x++)
                for (int32_t block = 0; block < l->blocks; block++)
                    for (int32_t b = 0; b < l->batch; b++)
                        for (int32_t i = 0; i < l->block_in; i++, packed++) {
                            int32_t n = n0 + b, channel = block * l->block_in + i;
                            if (n < l->n && channel < l->c)
                                tensor[((n * l->h + y) * l->w + x) * l->c + channel] = *packed;
                        }
}

static void to_device(const struct accelc_port *port, uint32_t address, uint32_t bytes) {
    if (port->clean)
        port->clean(port->context, port->memory + address, bytes);
}

static uint32_t get(const struct accelc_port *port, uint32_t offset) {
    return port->read(port->context, offset);
}

static void put(const struct accelc_port *port, uint32_t offset, uint32_t value) {
    port->write(port->context, offset, value);
}

/* Start the program at `address` and wait for its end. */
static int execute(const struct accelc_port *port, uint32_t address, uint32_t length,
                   uint32_t memory_bytes) {
    uint32_t status;
    put(port, ACCELC_REG_PROGRAM_ADDRESS, address);
    put(port, ACCELC_REG_PROGRAM_LENGTH, length);
    put(port, ACCELC_REG_MEMORY_BASE, port->memory_base);
    put(port, ACCELC_REG_MEMORY_BYTES, memory_bytes);
    put(port, ACCELC_REG_CONTROL, 1);
    do { /* ends in any case: the accelerator's watchdog makes an error of a standstill */
        status = get(port, ACCELC_REG_STATUS);
    } while (!(status & 6));
    if (status & 4) {
        int code = (int)get(port, ACCELC_REG_ERROR);
        put(port, ACCELC_REG_CONTROL, 2);
        while (get(port, ACCELC_REG_STATUS) & 1) { /* outstanding memory accesses drain */
        }
        return code ? code : ACCELC_NO_ANSWER;
    }
    return 0;
}
