// The sentence embedding of a list of token ids, computed by an exported model through cgo.
//
//	tilewright compile all-MiniLM-L6-v2.onnx -o libminilm.so --header minilm.h
//	go build -o embed . && ./embed 101 7592 2088 102
//
// minilm.h and libminilm.so are in the folder of this file.
package main

/*
#cgo CFLAGS: -I${SRCDIR}
#cgo LDFLAGS: -L${SRCDIR} -lminilm -Wl,-rpath,${SRCDIR}
#include <stdlib.h>
#include "minilm.h"

// Go hands out no arrays of its pointers; C puts them together.
static int run_one(minilm* model, const int64_t* dims, const int64_t* ids, const int64_t* mask, float* embedding,
                   float* states) {
  const void* inputs[] = {ids, mask};
  void* outputs[] = {embedding, states};
  return minilm_run_dims(model, dims, inputs, outputs);
}
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"unsafe"
)

// call runs a function of the model where its error text, which is the thread's, can be read.
func call(function func() C.int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if function() != C.MINILM_OK {
		return errors.New(C.GoString(C.minilm_error()))
	}
	return nil
}

func embed(ids []int64) ([]float32, error) {
	var model *C.minilm
	options := C.minilm_options{threads: 1}
	if err := call(func() C.int { return C.minilm_create(&options, &model) }); err != nil {
		return nil, err
	}
	defer C.minilm_destroy(model)

	dims := [...]C.int64_t{1, C.int64_t(len(ids))}
	var shape [3]C.int64_t
	if err := call(func() C.int { return C.minilm_output_shape(model, &dims[0], 1, &shape[0]) }); err != nil {
		return nil, err
	}
	mask := make([]int64, len(ids))
	for i := range mask {
		mask[i] = 1
	}
	embedding := make([]float32, shape[2])
	states := make([]float32, len(ids)*int(shape[2]))
	err := call(func() C.int {
		return C.run_one(model, &dims[0], (*C.int64_t)(unsafe.Pointer(&ids[0])), (*C.int64_t)(unsafe.Pointer(&mask[0])),
			(*C.float)(unsafe.Pointer(&embedding[0])), (*C.float)(unsafe.Pointer(&states[0])))
	})
	return embedding, err
}

func main() {
	ids := []int64{}
	for _, word := range os.Args[1:] {
		id, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			fmt.Fprintln(os.Stderr, "embed: expected token ids, which are whole numbers")
			os.Exit(1)
		}
		ids = append(ids, id)
	}
	embedding, err := embed(append(ids, 0)[:max(len(ids), 1)])
	if err != nil {
		fmt.Fprintln(os.Stderr, "embed:", err)
		os.Exit(1)
	}
	for _, value := range embedding {
		fmt.Printf("%.9g\n", value)
	}
}
