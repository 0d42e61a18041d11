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


class BaseEnum(enum.Enum):
    @classmethod
    def mapping(cls, key):
        """The member whose value is `key`; KeyError if there is none."""
        for member in cls:
            if member.value == key:
                return member
        raise KeyError(f"{cls.__name__} has no member {key!r}; choose from {[m.value for m in cls]}")


class All2allGradientsOp(BaseEnum):
    SUM_GRADIENTS = "sum_gradients"
    SUM_GRADIENTS_AND_DIV_BY_RANKSIZE = "sum_gradients_and_div_by_ranksize"


class ApplyGradientsStrategy(BaseEnum):
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
