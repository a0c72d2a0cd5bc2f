"""Tabs, odd continuation lines, strings that must not move, comments with owners."""
class Worker:
	def __init__(self): self.a = 1; self.text = "t"

	# ==================================
	# Cache
	# ==================================
	# glued to the first method: a ruler ends the block above

	# stands alone and stays

	# two lines
	# that belong to strings()
	def strings(self):
		"""Doc with a tab:
			inside
		"""
		sql = """
		select {a}
			  from self.a
		""" + f"""
		{self.a} and {self.text!r:>{self.a + 8}}
		{ self.a
			+ 1 }"""
		joined = ("x"
			     f"{self.text} → é {self.a}" "tail"
	)   
		raw = 'line one \
		line two'
		
		  
		return sql, joined, raw, self.text


	def tail(self):  # trailing comment
		if self.a:
			# a comment before any statement
			return [self.a,
					self.text,
    # a comment to the left
					]
		# return None
		#     self.a is not code here

	# between the methods, and free

	def one(self): return self.a, "self.text"
	def two(self, *, é=1): "doc"; return é + self.a
	x = 5
	def backslash(self):
		return self.a + \
			self.a \
 + 1

	# after the last method
