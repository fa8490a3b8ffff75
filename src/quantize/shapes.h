/* What minifloats do best for generalised normals of many shapes: the table that scripts/make-shapes makes. */
#ifndef TG_QUANTIZE_SHAPES_H
#define TG_QUANTIZE_SHAPES_H

enum { TG_SHAPE_N = 43, TG_SHAPE_FP4 = 0, TG_SHAPE_FP8, TG_SHAPE_FP8E4M3, TG_SHAPE_FORMAT_N };

typedef struct tg_shape {
    double shape; /* the exponent: 1 is a Laplace distribution, 2 a normal one */
    double rho;   /* (E|t|)^2 / E[t^2], which grows with it */
    struct {
        double reach;        /* the best scale times E|t| */
        const char *lengths; /* of a prefix code for what then is sent: a hexadecimal digit a symbol */
    } format[TG_SHAPE_FORMAT_N];
} tg_shape;

extern const tg_shape tg_shapes[TG_SHAPE_N];

#endif
