package main

func cCaller() {}
