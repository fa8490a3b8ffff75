/* Positions of the parameters of `autoencoder`. */
#ifndef TG_QUANTIZE_AUTOENCODER_H
#define TG_QUANTIZE_AUTOENCODER_H

enum {
    TG_LGC_FORM,
    TG_LGC_DENSE,
    TG_LGC_LEARN,
    TG_LGC_ENOUGH,
    TG_LGC_CODE,
    TG_LGC_ORDER,
    TG_LGC_REFRESH,
    TG_LGC_AGAIN,
    TG_LGC_OWN,
    TG_LGC_FIRST,
    TG_LGC_SHARE,
    TG_LGC_RATE,
    TG_LGC_LAMBDA1,
    TG_LGC_LAMBDA2,
    TG_LGC_ENCODER,                         /* channels of the encoder's four layers */
    TG_LGC_CHANNELS = TG_LGC_ENCODER + 4,   /* channels of the code */
    TG_LGC_DECODER,                         /* channels of the decoder's four layers */
    TG_LGC_WHOLE_TYPE = TG_LGC_DECODER + 4, /* of values that are sent whole */
    TG_LGC_PARAM_N
};

enum { TG_LGC_RING, TG_LGC_SERVER };
enum { TG_LGC_BY_VALUE, TG_LGC_BY_INDEX };
enum { TG_LGC_FIRST_DENSE, TG_LGC_FIRST_SPARSE };

#endif
