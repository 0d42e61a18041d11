// The two binary interfaces of MPI: that of Open MPI (libmpi.so.40), and that of MPICH, which Intel MPI, MVAPICH and
// others share (libmpi.so.12). Both are frozen by their makers, so that programs run with later versions; what a
// program needs of them are the types of its handles and a few constants. With these here, no MPI is needed to compile,
// and one build uses whichever MPI has started the process.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <type_traits>

namespace mxrec {

// Where a handle is the address of an object in the library.
struct OpenMpiAbi {
  using Handle = void*;
  struct Status {
    int source;
    int tag;
    int error;
    int cancelled;
    std::size_t count;
  };
  static constexpr int kAnySource = -1;
  static Handle World(void* library) { return dlsym(library, "ompi_mpi_comm_world"); }
  static Handle Byte(void* library) { return dlsym(library, "ompi_mpi_byte"); }
};

// Where a handle is a number.
struct MpichAbi {
  using Handle = int;
  struct Status {
    int count_low;
    int count_high_and_cancelled;
    int source;
    int tag;
    int error;
  };
  static constexpr int kAnySource = -2;
  static Handle World(void*) { return 0x44000000; }
  static Handle Byte(void*) { return 0x4c00010d; }
};

// The functions that are called, of a library of either interface.
template <typename Abi>
struct MpiFunctions {
  using Handle = typename Abi::Handle;
  using Status = typename Abi::Status;
  static constexpr int kFunneled = 1;  // of both

  int (*Initialized)(int*);
  int (*Finalized)(int*);
  int (*Init_thread)(int*, char***, int, int*);
  int (*Finalize)();
  int (*Comm_dup)(Handle, Handle*);
  int (*Comm_rank)(Handle, int*);
  int (*Comm_size)(Handle, int*);
  int (*Type_contiguous)(int, Handle, Handle*);
  int (*Type_commit)(Handle*);
  int (*Isend)(const void*, int, Handle, int, int, Handle, Handle*);
  int (*Improbe)(int, int, Handle, int*, Handle*, Status*);
  int (*Imrecv)(void*, int, Handle, Handle*, Handle*);
  int (*Get_count)(const Status*, Handle, int*);
  int (*Test)(Handle*, int*, Status*);

  // Returns the name of a function that the library lacks, nullptr if it has all.
  const char* Find(void* library) {
    const char* missing = nullptr;
    const auto find = [&](const char* name, auto* function) {
      void* found = dlsym(library, name);
      if (found == nullptr) missing = name;
      *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(found);
    };
    find("MPI_Initialized", &Initialized);
    find("MPI_Finalized", &Finalized);
    find("MPI_Init_thread", &Init_thread);
    find("MPI_Finalize", &Finalize);
    find("MPI_Comm_dup", &Comm_dup);
    find("MPI_Comm_rank", &Comm_rank);
    find("MPI_Comm_size", &Comm_size);
    find("MPI_Type_contiguous", &Type_contiguous);
    find("MPI_Type_commit", &Type_commit);
    find("MPI_Isend", &Isend);
    find("MPI_Improbe", &Improbe);
    find("MPI_Imrecv", &Imrecv);
    find("MPI_Get_count", &Get_count);
    find("MPI_Test", &Test);
    return missing;
  }
};

}  // namespace mxrec
