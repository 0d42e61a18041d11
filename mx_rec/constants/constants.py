"""Names of graph collections, limits and enumerations of the public API."""

import enum

ASCEND_GLOBAL_HASHTABLE_COLLECTION = "ASCEND_GLOBAL_HASHTABLE_COLLECTION"
ASCEND_CUTTING_POINT_INITIALIZER = "ASCEND_CUTTING_POINT_INITIALIZER"
ASCEND_SPARSE_LOOKUP_ENTRANCE = "ASCEND_SPARSE_LOOKUP_ENTRANCE"
ASCEND_SPARSE_LOOKUP_ID_OFFSET = "ASCEND_SPARSE_LOOKUP_ID_OFFSET"
ASCEND_SPARSE_LOOKUP_LOCAL_EMB = "ASCEND_SPARSE_LOOKUP_LOCAL_EMB"
ASCEND_SPARSE_LOOKUP_UNIQUE_KEYS = "ASCEND_SPARSE_LOOKUP_UNIQUE_KEYS"
ASCEND_TIMESTAMP = "ASCEND_TIMESTAMP"

MULTI_LOOKUP_TIMES = 128
TRAIN_CHANNEL_ID = 0
EVAL_CHANNEL_ID = 1
DEFAULT_EVICT_TIME_INTERVAL = 86400
MAX_VOCABULARY_SIZE = 10**9
MAX_DEVICE_VOCABULARY_SIZE = 10**9
BASE_MODEL = "base"
DELTA_MODEL = "delta"
HDFS_FILE_PREFIX = ["viewfs://", "hdfs://"]

# Libraries of ops that scripts ask import_host_pipeline_ops for by file name. One library of mx_rec has all of them.
LIBREC_CPU_SO = "librec_cpu.so"
LIBREC_EOS_OPS_SO = "librec_eos_ops.so"
LIBREC_TF_REC_V1_CPU_SO = "libtf_rec_v1_cpu.so"


class BaseEnum(enum.Enum):
    @classmethod
    def mapping(cls, key):
        """Returns the member whose value is `key`, or that of another enumeration's member; KeyError without."""
        key = key.value if isinstance(key, enum.Enum) else key
        for member in cls:
            if member.value == key:
                return member
        raise KeyError(f"{cls.__name__} has no member {key!r}; choose from {[m.value for m in cls]}")


class All2allGradientsOp(BaseEnum):
    SUM_GRADIENTS = "sum_gradients"
    SUM_GRADIENTS_AND_DIV_BY_RANKSIZE = "sum_gradients_and_div_by_ranksize"


class MxRecMode(BaseEnum):
    ASC = "ASC"


class ApplyGradientsStrategy(BaseEnum):
    """How a batch's gradients of one key become an update. Here they are summed in either case."""

    DIRECT_APPLY = "direct_apply"
    SUM_SAME_ID_GRADIENTS_AND_APPLY = "sum_same_id_gradients_and_apply"


class DataName(BaseEnum):
    KEY = "key"
    EMBEDDING = "embedding"


class ASCAnchorAttr(BaseEnum):
    TABLE_INSTANCE = "table_instance"
    IS_TRAINING = "is_training"
    FEATURE_SPEC = "feature_spec"


class CacheModeEnum(BaseEnum):
    HBM = "HBM"
    DDR = "DDR"
    SSD = "SSD"
