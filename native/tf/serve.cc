// MxrecServe: loads the tables of an exported model when the model is loaded, before it answers.
//
// It runs in the model's initialisation, so whoever can load a SavedModel gets the tables too. `asset` is the path of a
// file in the model's directory of assets, wherever that is now; the tables lie in ../variables/sparse-variables.
// Their names contain a number of the export, so a process may load several models, and train one besides. Loading a
// model again finds its tables there and leaves them alone: nothing changes them.
#include "checkpoint/served_tables.h"
#include "tf/border.h"

namespace mxrec {
namespace {

REGISTER_OP("MxrecServe")
    .Input("asset: string")
    .Attr("tables: list(string) >= 1")
    .Attr("directories: list(string) >= 1")  // of each table, below sparse-variables
    .Attr("dims: list(int) >= 1")
    .Attr("rows: list(int) >= 1")
    // What the export wrote: all files of all tables.
    .Attr("table_of_file: list(int)")
    .Attr("files: list(string)")
    .Attr("bytes: list(int)")
    .Attr("crc32c: list(int)")
    .Attr("table_of_padding: list(int) = []")
    .Attr("padding_keys: list(int) = []")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle scalar;
      return c->WithRank(c->input(0), 0, &scalar);
    });

std::string Parent(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? ".." : path.substr(0, slash);
}

class ServeOp : public Kernel {
 public:
  explicit ServeOp(OpKernelConstruction* c) : Kernel(c) {
    std::vector<int64_t> dims, rows, table_of_file, bytes, crc32c, table_of_padding, padding_keys;
    std::vector<std::string> tables, directories, files;
    OP_REQUIRES_OK(c, c->GetAttr("tables", &tables));
    OP_REQUIRES_OK(c, c->GetAttr("directories", &directories));
    OP_REQUIRES_OK(c, c->GetAttr("dims", &dims));
    OP_REQUIRES_OK(c, c->GetAttr("rows", &rows));
    OP_REQUIRES_OK(c, c->GetAttr("table_of_file", &table_of_file));
    OP_REQUIRES_OK(c, c->GetAttr("files", &files));
    OP_REQUIRES_OK(c, c->GetAttr("bytes", &bytes));
    OP_REQUIRES_OK(c, c->GetAttr("crc32c", &crc32c));
    OP_REQUIRES_OK(c, c->GetAttr("table_of_padding", &table_of_padding));
    OP_REQUIRES_OK(c, c->GetAttr("padding_keys", &padding_keys));
    const size_t count = tables.size();
    OP_REQUIRES(c, count == directories.size() && count == dims.size() && count == rows.size(),
                absl::InvalidArgumentError("tables, directories, dims and rows must have equal lengths"));
    OP_REQUIRES(c,
                files.size() == table_of_file.size() && files.size() == bytes.size() && files.size() == crc32c.size(),
                absl::InvalidArgumentError("files, table_of_file, bytes and crc32c must have equal lengths"));
    OP_REQUIRES_OK(c, CheckAttribute("dims", dims, 1, kMaxDim));
    OP_REQUIRES_OK(c, CheckAttribute("rows", rows, 0, INT64_MAX));
    OP_REQUIRES(c, table_of_padding.size() == padding_keys.size(),
                absl::InvalidArgumentError("table_of_padding and padding_keys must have equal lengths"));
    OP_REQUIRES_OK(c, CheckAttribute("table_of_padding", table_of_padding, 0, static_cast<int64_t>(count) - 1));
    tables_.resize(count);
    for (size_t t = 0; t < count; ++t) {
      tables_[t].config.name = tables[t];
      tables_[t].config.dim = static_cast<int>(dims[t]);
      tables_[t].config.expected_rows = rows[t];
      tables_[t].directory = directories[t];
    }
    for (size_t i = 0; i < padding_keys.size(); ++i) {
      tables_[table_of_padding[i]].config.padding_keys.push_back(padding_keys[i]);
    }
    for (size_t i = 0; i < files.size(); ++i) {
      OP_REQUIRES(c, table_of_file[i] >= 0 && table_of_file[i] < static_cast<int64_t>(count),
                  absl::InvalidArgumentError("table_of_file is out of range"));
      tables_[table_of_file[i]].files.push_back({files[i], bytes[i], static_cast<uint32_t>(crc32c[i])});
    }
  }

  void Work(OpKernelContext* c) override {
    OP_REQUIRES(
        c, c->input(0).dims() == 0,
        absl::InvalidArgumentError("the asset must be one path, got shape " + c->input(0).shape().DebugString()));
    const std::string asset(c->input(0).scalar<tensorflow::tstring>()());
    const std::string root = Parent(Parent(asset)) + "/variables/sparse-variables";
    OP_REQUIRES_OK(c, ToTensorFlow(LoadServed(Env::Posix(), root, tables_, &Registry::Global(), PoolFor(c))));
  }

 private:
  std::vector<ServedTable> tables_;
};

REGISTER_KERNEL_BUILDER(Name("MxrecServe").Device(tensorflow::DEVICE_CPU), ServeOp);

}  // namespace
}  // namespace mxrec
